# SPDX-License-Identifier: GPL-2.0
"""make matrix: what the series touches, compiled in many configurations, base against patched.

lab/matrix.conf declares them. In each, what the series adds fails: a warning of W=1 or sparse, an
error, a symbol that no object has or that is gone (nothing is linked, so those are looked for).
The whole series is compiled first, and of the base what is needed to judge that. A finding names
its patch: the first prefix of the series that has it.
"""

import concurrent.futures
import datetime
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from . import bases, build, cache, compose, deps, proof, runner, tree as trees
from .bases import ROOT
from .ui import LabError, git, run, say, stage

COMMON = ROOT / 'lab/config/matrix.config'
# tinyconfig makes a 32-bit kernel where an architecture has both.
IMPLIED = {'x86_64': ['64BIT=y']}
CHECKS = ('compile', 'coccinelle', 'selftests')

# Directories with callers of what touched headers have. Device drivers and single file systems
# are not in the configurations.
DIRS = ('mm', 'fs', 'block', 'kernel')

# How the tests are compiled for a machine: (compiler, the machine in the header of its programs).
PROGRAMS = {'arm64': ('aarch64-linux-gnu-gcc', 183), 'i386': ('i686-linux-gnu-gcc', 3)}

# The directories that coccinelle finds headers in, as make coccicheck has them.
INCLUDES = ('-I./arch/x86/include -I./include -I./arch/x86/include/uapi -I./include/uapi '
            '-include ./include/linux/kconfig.h')


@dataclass
class Config:
    """A stanza of lab/matrix.conf."""
    name: str
    check: str
    arch: str
    options: list
    bases: str
    scope: str
    sparse: bool
    prefixes: bool

    def fragment(self):
        """A file with its options, in the cache."""
        lines = [f'CONFIG_{word}' for word in IMPLIED.get(self.arch, []) + self.options]
        path = cache.path('matrix', f'{self.name}.config')
        path.write_text('\n'.join(lines + ['']))
        return path


@dataclass
class Result:
    """What came out of a configuration."""
    conf: Config
    objects: int = 0
    before: int = 0             # warnings of the base
    after: int = 0
    prefixes: int = 0
    seconds: float = 0
    unread: list = field(default_factory=list)
    found: list = field(default_factory=list)       # "patch: file:line: what"


def load(path=ROOT / 'lab/matrix.conf'):
    """All configurations by name."""
    found = {}
    for entry in bases.stanzas(path):
        try:
            conf = Config(entry['Name'], entry.get('Check', 'compile'), entry['Arch'],
                          entry.get('Options', '').split(), entry.get('Bases', 'all'),
                          entry.get('Scope', 'touched'), entry.get('Sparse', 'no') == 'yes',
                          entry.get('Prefixes', 'no') == 'yes')
        except KeyError as err:
            raise LabError(f'{path.name}: a stanza lacks {err}') from err
        arches = PROGRAMS if conf.check == 'selftests' else build.ARCHES
        for key, value, known in (('Check', conf.check, CHECKS), ('Arch', conf.arch, arches),
                                  ('Scope', conf.scope, ('touched', 'all')),
                                  ('Sparse', entry.get('Sparse', 'no'), ('yes', 'no')),
                                  ('Prefixes', entry.get('Prefixes', 'no'), ('yes', 'no'))):
            if value not in known:
                raise LabError(f'{path.name}: {conf.name}: {key}: {value} is not known',
                               f'one of {", ".join(known)}')
        if conf.sparse and conf.arch != build.NATIVE:
            raise LabError(f'{path.name}: {conf.name}: sparse reads the headers of {build.NATIVE}')
        bad = [word for word in conf.options if not re.match(r'[A-Z0-9_]+=\S+$', word)]
        if bad:
            raise LabError(f'{path.name}: {conf.name}: Options: {bad[0]} is not NAME=value')
        if conf.name in found:
            raise LabError(f'{path.name}: {conf.name} is there twice')
        found[conf.name] = conf
    return found


def pick(names):
    """The configurations that CONFIGS= names; all when it is empty."""
    confs = load()
    if not names:
        return list(confs.values())
    picked = []
    for name in re.split(r'[ ,]+', names.strip()):
        if name not in confs:
            raise LabError(f'CONFIGS={name} is not declared', f'one of {", ".join(confs)}')
        picked.append(confs[name])
    return picked


# --- What to compile.

def changed_names(diff):
    """What a diff of headers can break callers of: functions with another prototype, and names
    that are taken away. What is only added breaks nobody who does not use it."""
    names = set()
    for hunk in re.split(r'^@@.*$', diff, flags=re.M)[1:]:
        lines = [line for line in hunk.split('\n') if not line.startswith(('diff --git', 'index '))]
        for nr, line in enumerate(lines):
            text = line[1:].strip()
            if line[:1] not in '+-' or not line or text.startswith(('/*', '*', '//')):
                continue
            match = re.search(r'(\w+)(?:\[[^]]*\])*;$', text)
            if line[0] == '-' and match and '(' not in text and ')' not in text:
                names.add(match.group(1))
            # The name of a function may be lines above the parameter that changes.
            for above in range(nr, -1, -1):
                other = lines[above][1:].strip()
                if above < nr and other.endswith((';', '{', '}', '*/')):
                    break
                match = re.search(r'(\w+)\(', other)
                if match:
                    if lines[above][:1] != '+':
                        names.add(match.group(1))
                    break
    return names - {'if', 'while', 'for', 'switch', 'sizeof', 'return', 'defined'}


def configured(tree, out, directory):
    """The objects of a directory that a configuration has, out of its Makefile."""
    text = ('include include/config/auto.conf\n'
            f'include {tree.path}/{directory}/Makefile\n'
            # page-alloc.o is made of page_alloc.o.
            'all:\n\t@echo $(foreach o,$(obj-y),$(or $(strip $($(o:.o=-y)) $($(o:.o=-objs))),$(o)))\n'
            '.PHONY: all\n')
    _, names = run(['make', '-s', '-f', '-', f'srctree={tree.path}', f'src={tree.path}/{directory}',
                    f'obj={directory}', 'all'], cwd=out, stdin=text)
    found = {f'{directory}/{name}' for name in names.split() if name.endswith('.o')}
    if not found:
        raise LabError(f'{directory}/Makefile of {tree.ident} names no object')
    return {name for name in found if (tree.path / f'{name[:-2]}.c').exists()}


def callers(tree, commits):
    """The objects of files in DIRS that name what touched headers change."""
    old, new = 'base', commits[-1]
    names = changed_names(git(tree.path, 'diff', '-U8', old, new, '--', 'include/', 'mm/*.h'))
    found = set()
    for commit in (old, new) if names else ():
        words = [word for name in sorted(names) for word in ('-e', name)]
        _, text = git(tree.path, 'grep', '-lw', *words, commit, '--', *[f'{d}/*.c' for d in DIRS],
                      check=False)
        found |= {line.split(':', 1)[1][:-2] + '.o' for line in text.splitlines()}
    return found


# --- Of one configuration.

class Bench:
    """A configuration of a tree, and the commits of the series in it."""

    def __init__(self, tree, conf, patches, commits):
        self.tree, self.conf, self.patches, self.commits = tree, conf, patches, commits
        trees.checkout(tree, 'base')
        self.out, self.hash = build.configure(tree, [COMMON, conf.fragment()], conf.arch)
        self.log = cache.path('log', f'matrix-{tree.ident}-prepare.log')
        self._take_tools()
        run(['nice', *build._make(tree, self.out, f'-j{build.JOBS}', 'prepare', arch=conf.arch)],
            env=build._env(), log=self.log)
        (self.out / '.mmlab-prepared').write_text(conf.arch)
        self.there = set().union(*[configured(tree, self.out, name) for name in DIRS])

    def _take_tools(self):
        """Have what make compiles for itself from another directory of the tree."""
        ready = [p.parent for p in self.out.parent.glob(f'{self.tree.ident}-*/.mmlab-prepared')
                 if p.read_text() == self.conf.arch]
        if not ready or self.out in ready:
            return
        for name in ('scripts', 'tools'):
            if (ready[0] / name).is_dir():
                (self.out / name).mkdir(exist_ok=True)
                run(['cp', '-a', f'{ready[0]}/{name}/.', f'{self.out}/{name}'])

    def compile(self, commit, objects, sparse=None):
        """proof.compile_objects() here, with sparse where the stanza has it."""
        sparse = self.conf.sparse if sparse is None else sparse
        return proof.compile_objects(self.tree, commit, sorted(objects), self.out, self.hash,
                                     self.conf.arch, sparse, True)

    def remade(self, old, new, objects):
        """Those of some objects that a step from one commit to another makes anew."""
        names = [name for name in git(self.tree.path, 'diff', '--name-only', old, new).splitlines()
                 if not name.startswith(('tools/', 'Documentation/'))]
        if any(not name.endswith('.c') for name in names):
            return objects
        return [o for o in objects if o[:-2] + '.c' in names]

    def blame(self, objects, has):
        """The first patch with which `has` is true of the Noise of some objects."""
        for patch, commit in zip(self.patches, self.commits):
            try:
                bad = has(self.compile(commit, objects))
            except LabError:
                bad = True
            if bad:
                return patch.name
        return 'the series'

    def _named(self, commit, symbol, pattern):
        """The objects here whose source has a pattern with the symbol in it."""
        _, text = git(self.tree.path, 'grep', '-lE', pattern.format(symbol), commit, '--',
                      *[f'{d}/*.c' for d in DIRS], check=False)
        return {line.split(':', 1)[1][:-2] + '.o' for line in text.splitlines()} & self.there

    def unresolved(self, before, after, near):
        """Symbols that the series makes objects need and that no object here has."""
        new = set(after.needs) - set(before.needs) - set(after.defines)
        for symbol in sorted(new):
            names = self._named(self.commits[-1], symbol, r'^[^ /#].*\b{}(\(|\)| = |;)')
            if names and symbol in self.compile(self.commits[-1], names, False).defines:
                continue
            # It may be in a directory that is not looked at, or made by a macro: then others need
            # it, whom the series does not touch, and the base is linked with them. A few will do.
            names = sorted(self._named('base', symbol, r'\b{}\b') - set(near))[:4]
            if not names or symbol not in self.compile('base', names, False).needs:
                yield symbol

    def gone(self, before, after):
        """(symbol, file) of what the series takes away and others name."""
        for symbol in sorted(set(before.defines) - set(after.defines)):
            _, text = git(self.tree.path, 'grep', '-lw', symbol, self.commits[-1], '--', '*.[chS]',
                          ':!tools', ':!Documentation', check=False)
            for line in text.splitlines():
                name = line.split(':', 1)[1]
                if name[:-2] + '.o' != before.defines[symbol]:
                    yield symbol, name


def _compare(bench, result, before, after, objects):
    """Note what the series adds to some objects."""
    for what, count in (after.count - before.count).items():
        name, text = what.split(': ', 1)
        own = {name[:-2] + '.o'} & bench.there or objects
        patch = bench.blame(own, lambda noise, w=what: noise.count[w] > before.count[w])
        result.found.append(f'{patch}: {after.where[what]}: {text}'
                            + (f' ({count} times)' if count > 1 else ''))


def compile_config(tree, conf, patches, commits, touched, calling):
    """A Result of Check: compile."""
    start, result = time.monotonic(), Result(conf)
    bench = Bench(tree, conf, patches, commits)
    near = sorted((touched | calling) & bench.there)
    if not near:
        raise LabError(f'{conf.name} has none of the objects that the series touches')
    far = sorted({o for o in bench.there if o.startswith('mm/')} - set(near)) \
        if conf.scope == 'all' else []
    before = bench.compile('base', near)
    result.objects, result.unread = len(near) + len(far), before.unread
    try:
        after = bench.compile(commits[-1], near)
        rest = bench.compile(commits[-1], far, False) if far else None
    except LabError as err:
        patch = bench.blame(near + far, lambda noise: False)
        result.found.append(f'{patch}: {err}')
        result.seconds = time.monotonic() - start
        return result
    _compare(bench, result, before, after, near)
    result.before, result.after = sum(before.count.values()), sum(after.count.values())
    if rest:
        loud = sorted({what.split(': ')[0] for what in rest.count})
        old = bench.compile('base', far, False) if loud else proof.Noise(Counter(), {}, [])
        _compare(bench, result, old, rest, far)
        result.before += sum(old.count.values())
        result.after += sum(rest.count.values())
    for symbol in bench.unresolved(before, after, near):
        patch = bench.blame(near, lambda noise, s=symbol: s in noise.needs)
        result.found.append(f'{patch}: {after.needs[symbol]} needs {symbol}, which no object has '
                            'in this configuration')
    for symbol, name in bench.gone(before, after):
        patch = bench.blame(near, lambda noise, s=symbol: s not in noise.defines)
        result.found.append(f'{patch}: {symbol} is gone from {before.defines[symbol]}, and {name} '
                            'names it')
    if conf.prefixes:
        result.prefixes = 1         # the whole series
        for last, patch, commit in zip(['base'] + commits, patches, commits[:-1]):
            own = bench.remade(last, commit, near)
            result.prefixes += 1
            if not own:         # a file that this configuration does not have
                continue
            try:
                noise = bench.compile(commit, own)
            except LabError as err:
                result.found.append(f'{patch.name}: {err}')
                continue
            # What is in the whole series as well has been said.
            more = noise.count - before.count - (after.count - before.count)
            result.found += [f'{patch.name}: {noise.where[what]}: {what.split(": ", 1)[1]} (a later '
                             'patch takes it away)' for what in more]
    result.seconds = time.monotonic() - start
    return result


# --- coccinelle.

def reports(tree, text):
    """The reports in an output of coccicheck, counted, without places; the place of the first."""
    found, where = Counter(), {}
    for line in text.splitlines():
        match = re.match(r'(\S+?\.[ch]):(\d+):[\d-]+:? *(.*)', line)
        if match:
            # It names other lines of the file, too.
            what = re.sub(r'\bline \d+', 'line', match.group(3))
            found[what] += 1
            where.setdefault(what, f'{proof.inside_tree(tree, match.group(1))}:{match.group(2)}')
    return found, where


def coccicheck(tree, name, script=''):
    """What the scripts of the tree for coccinelle say of a file: (reports, places, scripts run)."""
    env = {'C': '1', 'MODE': 'report', 'srctree': str(tree.path), 'LINUXINCLUDE': INCLUDES,
           'V': '1'}
    log = cache.path('log', f'coccicheck-{Path(name).stem}.log')
    code, text = run(['nice', 'bash', 'scripts/coccicheck', str(name)], cwd=tree.path, check=False,
                     log=log, env=dict(env, **({'COCCI': script} if script else {})))
    count = len(re.findall(r'^Running \(', text, re.M))
    if code or not count:
        last = next((line for line in text.splitlines()
                     if re.search(r'rror|No |Fatal|not found', line)), f'exit {code}')
        raise LabError(f'coccicheck of {name}: {last}', f'see {log}')
    found, where = reports(tree, text)
    return found, where, count


def _probe(tree):
    """A LabError unless coccinelle finds a fault that is there."""
    with tempfile.TemporaryDirectory(dir=cache.path('x').parent) as tmp:
        path = Path(tmp) / 'probe.c'
        path.write_text('int f(int a)\n{\n\tswitch (a) {\n\tcase 1:\n\t\treturn 1;\n\t};\n\treturn 0;\n}\n')
        found, _, _ = coccicheck(tree, path, str(tree.path / 'scripts/coccinelle/misc/semicolon.cocci'))
    if not found:
        raise LabError('coccinelle does not find the fault in a file that has one',
                       'see scripts/coccicheck of the tree')


def cocci_config(tree, conf, series, commits):
    """A Result of Check: coccinelle, on the files that the series touches."""
    # git blame wants to know of each commit below the last one, tests and all.
    whole = build.Kernel('', '', commits[-1], patches=series.patches)
    start, result = time.monotonic(), Result(conf)
    names = [o[:-2] + '.c' for o in proof.objects_between(tree, 'base', commits[-1])]
    _, version = run(['spatch', '--version'])
    headers = git(tree.path, 'diff', '--name-only', 'base', commits[-1], '--', '*.h').splitlines()

    def check(commit, wanted):
        trees.checkout(tree, commit)
        _probe(tree)

        def one(name):
            listed = git(tree.path, 'ls-tree', commit, name, 'scripts/coccinelle', *headers)
            kept = cache.path('matrix', f'cocci-{cache.digest(listed, version, INCLUDES)}')
            if not kept.exists():
                say(f'    {name}')
                found, where, count = coccicheck(tree, name)
                lines = [str(count)] + [f'{where[what]}\t{what}' for what in found.elements()]
                part = kept.with_suffix('.part')
                part.write_text('\n'.join(lines + ['']))
                os.rename(part, kept)
            return name, kept.read_text().splitlines()
        with concurrent.futures.ThreadPoolExecutor(build.JOBS) as pool:
            return dict(pool.map(one, wanted))

    after = check(commits[-1], names)
    before = check('base', [name for name in names if len(after[name]) > 1])
    result.objects = len(names)
    for name, lines in before.items():
        where = dict(line.split('\t')[::-1] for line in after[name][1:])
        old = Counter(line.split('\t')[1] for line in lines[1:])
        new = Counter(line.split('\t')[1] for line in after[name][1:])
        result.before += sum(old.values())
        result.after += sum(new.values())
        for what in new - old:
            number = where[what].rsplit(':', 1)[1]
            patch = build._patch_of(tree, whole, name, number)
            result.found.append(f'{patch.name if patch else "the series"}: {where[what]}: {what}')
    result.seconds = time.monotonic() - start
    return result


# --- The tests.

def programs(arch, names=()):
    """Tests (all), static, for another architecture: their directory. A LabError with a warning."""
    names = list(names) or build.own_tests()
    compiler, machine = PROGRAMS[arch]
    sources = sorted(p for p in (ROOT / 'selftests').rglob('*') if p.suffix in ('.c', '.h')
                     or p.name == 'Makefile')
    _, version = run([compiler, '--version'])
    done = cache.path('matrix', f'tests-{arch}-{cache.digest(version, *names, *sources)}')
    if not done.exists():
        part = done.with_suffix('.part')
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(ROOT / 'selftests', part)
        run(['make', '-C', str(part), 'clean'])
        # All that is wrong, in one go.
        log = cache.path('log', f'matrix-tests-{arch}.log')
        code, text = run(['nice', 'make', '-k', '-C', str(part), *names, f'CC={compiler}',
                          'CFLAGS=-O2 -g -Werror', 'LDFLAGS=-static'], check=False, log=log)
        bad = re.findall(r'^(\S+\.[ch]:\d+):\d+: ((?:warning|error|fatal error): .*)$', text, re.M)
        if code:
            raise LabError('; '.join(f'{where}: {what}' for where, what in bad)
                           or f'make: {code}', f'see {log}')
        for name in names:
            head = (part / name).read_bytes()[:20]
            if head[18] + 256 * head[19] != machine:
                raise LabError(f'{name} is not a program for {arch}')
        cache.replace(part, done)
    return done


def tests_config(conf):
    """A Result of Check: selftests."""
    start, result = time.monotonic(), Result(conf)
    result.objects = len(build.own_tests())
    try:
        programs(conf.arch)
    except LabError as err:
        result.found.append(f'selftests: {err}')
    result.seconds = time.monotonic() - start
    return result


# --- All of them.

def line(base, result):
    """A line of the table."""
    conf = result.conf
    what = {'compile': 'objects, W=1' + (', sparse' if conf.sparse else ''),
            'coccinelle': 'files, coccinelle', 'selftests': 'programs, -Werror'}[conf.check]
    return (f'{base:9} {conf.name:20} {conf.arch:7} {"FAILED" if result.found else "ok":7} '
            f'{result.objects:3} {what}; {result.before} warnings on the base, {result.after} '
            f'patched' + (f'; {result.prefixes} prefixes' if result.prefixes else '')
            + f'; {result.seconds:.0f} s')


def matrix(base, confs, own_tree, extra):
    """All configurations of a base: [Result]."""
    with stage('fetch', f'{base.name}: {base.package} {base.version}'):
        tree = trees.get(base, own_tree)
    series = bases.load_series(base)
    if extra:
        series.patches.append(bases.Patch(extra))
    with stage('apply', base.series):
        commits = compose.series_commits(tree, series)
        kept = [(p, c) for p, c in zip(series.patches, commits) if p.is_fix]
        patches, commits = [p for p, _ in kept], [c for _, c in kept]
        touched = set(proof.objects_between(tree, 'base', commits[-1]))
        calling = callers(tree, commits)
        say(f'    {len(commits)} patches to the kernel touch {len(touched)} objects; '
            f'{len(calling - touched)} more name what their headers change')
    results = []
    for conf in confs:
        if base.name not in conf.bases.split() and conf.bases != 'all':
            say(f'{conf.name}: there is no such configuration of {base.name}')
            continue
        with stage(f'{conf.check} {conf.arch}', f'{base.name} {conf.name}'):
            if conf.check == 'coccinelle':
                result = cocci_config(tree, conf, series, commits)
            elif conf.check == 'selftests':
                result = tests_config(conf)
            else:
                result = compile_config(tree, conf, patches, commits, touched, calling)
        say(f'    {line(base.name, result)}')
        for text in result.found:
            say(f'    {text}')
        results.append(result)
    trees.checkout(tree, 'base')
    return results


def main():
    """make matrix [BASE=mainline|6.1|all] [CONFIGS=] [TREE=] [WITH=one more patch] [BOOT=arm64]"""
    from . import arm64         # which takes the tests from here
    picked = bases.pick_bases(os.environ.get('BASE') or 'mainline')
    target = os.environ.get('BOOT') or ''
    # A boot alone, unless configurations are asked for as well.
    asked = os.environ.get('CONFIGS') or ''
    confs = [] if target and not asked else pick(asked)
    if target not in ('', 'arm64'):
        raise LabError(f'BOOT={target} is not known', 'it takes arm64')
    if target and [base.name for base in picked] != ['mainline']:
        raise LabError('BOOT=arm64 has a configuration for BASE=mainline alone')
    own_tree, runs = os.environ.get('TREE', ''), runner.Options.from_env().runs
    extra = os.environ.get('WITH') and Path(os.environ['WITH']).absolute()
    if extra and not extra.is_file():
        raise LabError(f'WITH={extra}: there is no such file')
    deps.ensure(dict(deps.RUN, **deps.MATRIX))
    cache.lock()
    lines, count, bad = [], 0, 0
    for base in picked:
        for result in matrix(base, confs, own_tree, extra) if confs else ():
            count += 1
            bad += bool(result.found)
            lines.append(line(base.name, result))
            lines += [f'          {result.conf.name}: {text}' for text in result.found]
            if result.unread:
                lines.append(f'          sparse stumbles over {" ".join(result.unread)}, without '
                             'the series as well, and may leave checks out there')
        if target:
            more, failures = arm64.boots(base, own_tree, runs)
            lines += more
            count, bad = count + 1, bad + bool(failures)
    place = Path(os.environ.get('RESULTS') or ROOT / 'results')
    place.mkdir(parents=True, exist_ok=True)
    report = place / f'matrix-{datetime.datetime.now():%Y%m%d-%H%M%S}.txt'
    report.write_text('\n'.join([build.compiler(), build.compiler('arm64'), *lines, '']))
    print('\n'.join(lines))
    print(f'{bad} of {count} configurations failed; {report}')
    return 1 if bad or not count else 0
