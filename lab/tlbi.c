// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin of QEMU: counts the TLBI instructions that an arm64 guest executes,
 * by their address.
 *
 *   -plugin tlbi.so,out=FILE
 *
 * writes "ADDRESS COUNT" lines when the guest ends. What it takes of the plugin
 * interface (version 1, QEMU 4.2 and later) is declared here: Debian has no
 * package with the header.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct qemu_plugin_tb;
struct qemu_plugin_insn;

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
		void (*cb)(uint64_t id, struct qemu_plugin_tb *tb));
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
		void (*cb)(unsigned int vcpu, void *data), int flags, void *data);
void qemu_plugin_register_atexit_cb(uint64_t id,
		void (*cb)(uint64_t id, void *data), void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb,
						 size_t nr);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

/* A kernel has a hundred places or so; a slot is taken once and for all. */
#define SLOTS	4096

static struct {
	_Atomic uint64_t addr, count;
} slots[SLOTS];
static char out[4096];

/* SYS with CRn 8: all TLBI instructions of the architecture, and no other. */
static int is_tlbi(uint32_t insn)
{
	return (insn & 0xfff8f000) == 0xd5088000;
}

static void executed(unsigned int vcpu, void *data)
{
	(void)vcpu;
	atomic_fetch_add((_Atomic uint64_t *)data, 1);
}

static void translated(uint64_t id, struct qemu_plugin_tb *tb)
{
	size_t nr, n = qemu_plugin_tb_n_insns(tb), slot;

	(void)id;
	for (nr = 0; nr < n; nr++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, nr);
		uint64_t addr = qemu_plugin_insn_vaddr(insn);
		uint32_t word;

		memcpy(&word, qemu_plugin_insn_data(insn), sizeof(word));
		if (!is_tlbi(word))
			continue;
		/* Translated more than once, on several vCPUs at a time. */
		for (slot = 0; slot < SLOTS; slot++) {
			uint64_t none = 0;

			if (atomic_compare_exchange_strong(&slots[slot].addr,
							   &none, addr) ||
			    none == addr)
				break;
		}
		if (slot == SLOTS) {
			fprintf(stderr, "tlbi: more than %d places\n", SLOTS);
			abort();
		}
		qemu_plugin_register_vcpu_insn_exec_cb(insn, executed, 0,
						       &slots[slot].count);
	}
}

static void end(uint64_t id, void *data)
{
	FILE *f = fopen(out, "w");
	size_t slot;

	(void)id;
	(void)data;
	if (!f) {
		perror(out);
		return;
	}
	for (slot = 0; slot < SLOTS && slots[slot].addr; slot++)
		fprintf(f, "%" PRIx64 " %" PRIu64 "\n", slots[slot].addr,
			slots[slot].count);
	fclose(f);
}

__attribute__((visibility("default")))
int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
	(void)info;
	if (argc != 1 || strncmp(argv[0], "out=", 4)) {
		fprintf(stderr, "tlbi: wants out=FILE\n");
		return -1;
	}
	snprintf(out, sizeof(out), "%s", argv[0] + 4);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, end, NULL);
	return 0;
}
