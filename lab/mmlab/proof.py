# SPDX-License-Identifier: GPL-2.0
"""What has to be proved before mails are written: by a run of the lab, by make, checkpatch and b4."""

import json
import os
import re
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from . import bases, build, cache, check, runner, tree as trees
from .compose import Index, subject
from .ui import LabError, git, run, say


def wanted_runs(topic, base, series, tests, lrus=('classic', 'mglru')):
    """What a run has to have: [(kernel, test, lru, rows that have to fail)]."""
    names = [t.name for t in tests]
    kerns = [build.Kernel('base', '', '', series.expect, names),
             build.Kernel('patched', '', '', {}, names)]
    for patch in series.patches:
        if patch.topic == topic and patch.is_fix and not patch.by_hand:
            kerns.append(build.Kernel(f'without:{patch.path.stem[:4]}', '', '', patch.expect, names,
                                      [patch.path]))
    for mutant in bases.load_mutants(base):
        if mutant.test in names:
            kerns.append(build.Kernel(f'mutant:{mutant.name}', '', '', mutant.expect,
                                      [mutant.test], [mutant.path]))
    return kerns, [(kern, test, lru) for kern in kerns for test in tests for lru in lrus
                   if runner.wanted(kern, test, lru)]


def _failing(entry):
    return {row['name'] for row in entry['rows'] if row['status'] == 'not ok'}


def _judge(results, kerns, wanted, keys):
    """What a run lacks to prove the topic, and what in it says the contrary; empty if nothing."""
    same = dict(re.findall(r'^(\S+) is the same kernel as (\S+), and', '\n'.join(results['notes']),
                           re.M))
    have = {kern['name']: kern for kern in results['kernels']}
    lacks, wrong, usable = [], [], set()
    for kern in kerns:
        name = same.get(kern.name, kern.name)
        if name not in have:
            lacks.append(f'it has no kernel {kern.name}')
        elif name == kern.name and not have[name]['bad'] and have[name]['key'] != keys(kern, results):
            lacks.append(f'{kern.name} has changed since')
        elif have[name]['bad']:
            wrong.append(f'{kern.name}: {have[name]["bad"]}')
        else:
            usable.add(kern.name)
    for kern, test, lru in wanted:
        name = same.get(kern.name, kern.name)
        entries = [e for e in results['runs'] if kern.name in usable and
                   (e['kernel'], e['test'], e['lru']) == (name, test.name, lru)]
        if not entries:
            lacks.append(f'{kern.name} was not booted for {test.name} {lru}')
        for entry in entries:
            if entry['as_expected'] and _failing(entry) == set(kern.expect.get((test.name, lru), ())):
                continue
            escaped = kern.name.startswith('mutant:') and not _failing(entry)
            wrong.append(f'{kern.name} {test.name} {lru} '
                         + ('was not caught' if escaped else
                            f'is not as expected: {entry["why"] or "other rows fail"}'))
    return (lacks or [''])[0], (wrong or [''])[0]


def only_other_tests(place, topic, old, new):
    """Whether two trees are one but for sources of tests of other topics.

    A test is a program of one source; what tests share counts for each of them. Kernels are told
    apart by their keys.
    """
    if old == new:
        return True
    code, out = git(place.path, 'diff', '--name-only', old, new, check=False)
    others = {f'{place.base.selftests}/{test.name}.c' for test in bases.load_tests().values()
              if test.topic != topic}
    # A tree that is not here cannot be compared.
    return not code and set(out.splitlines()) <= others


def by_results(opts, place, series, commits):
    """The newest run that proves the topic, and the one with the numbers: a LabError without one."""
    tests = [t for t in bases.load_tests().values() if t.topic == opts.topic]
    if not tests:
        raise LabError(f'no test has the topic {opts.topic}', 'lab/tests.conf')
    own_tree = f' TREE={opts.tree}' if opts.tree else ''
    todo = (f'make run BASE={opts.base.name} TESTS={",".join(t.name for t in tests)}{own_tree}')
    tree_hash = place.tree_of(commits[-1])
    config = cache.digest(*[p.read_bytes() for p in opts.base.config])
    cached = {}

    def keys(kern, results):
        if kern.name not in cached:
            start = 'base' if kern.name == 'base' else commits[-1]
            index = Index(place, start)
            for path in kern.patches:
                index.apply(path, reverse=kern.name.startswith('without'))
            cached[kern.name] = trees.kernel_key(place, index.tree())
            index.close()
        return cache.digest(cached[kern.name], results['config_hash'], results['compiler'])

    kerns, wanted = wanted_runs(opts.topic, opts.base, series, tests)
    reason, proved, numbers = '', None, None
    for path in sorted(Path(opts.results).glob('*/results.json'), reverse=True):
        try:
            results = json.loads(path.read_text())
            if results['base'] != opts.base.name or not only_other_tests(
                    place, opts.topic, results['series_tree'], tree_hash):
                continue
            if results['config_hash'] != config:
                reason = reason or f'{path.parent.name} has another kernel configuration'
                continue
            lacks, wrong = _judge(results, kerns, wanted, keys)
            part = _judge(results, kerns[:2], [w for w in wanted if w[0] in kerns[:2]], keys)
        except (ValueError, KeyError, TypeError) as err:
            say(f'{path}: not a result of make run: {err!r}')
            continue
        if wrong and not proved:
            # An older run that went well does not undo that: a newer one does.
            reason = f'{path.parent.name}: {wrong}'
            break
        if lacks and not reason:
            reason = f'{path.parent.name}: {lacks}'
        if not lacks and not wrong and not proved:
            proved = dict(results, dir=path.parent.name)
        if part == ('', ''):
            count = repeats(results, tests)
            if not numbers or count > numbers[0]:
                numbers = (count, dict(results, dir=path.parent.name))
    if not proved:
        raise LabError(reason or f'{opts.results} has no result for the series as it is now (tree '
                       f'{tree_hash[:12]})', todo)
    return tests, kerns, proved, numbers[1]


def repeats(results, tests):
    """In how many runs base and patched were booted for all of some tests."""
    count = Counter((e['kernel'], e['test'], e['lru']) for e in results['runs'])
    return min(count[kernel, t.name, lru] for kernel in ('base', 'patched') for t in tests
               for lru in ('classic', 'mglru'))


# --- Of each patch.

def _objects(place, mails):
    """The objects of the files that the patches to the kernel touch."""
    return objects_between(place, mails[0].parent, mails[-1].commit)


def objects_between(place, old, new):
    """The objects of the files that differ between two commits."""
    names = git(place.path, 'diff', '--name-only', old, new).splitlines()
    return sorted(name[:-2] + '.o' for name in names
                  if name.endswith('.c') and not name.startswith('tools/'))


def inside_tree(place, text):
    """A message with a path into the tree, absolute or from the build directory, made short."""
    return re.sub(rf'^\S*/{re.escape(place.path.name)}/', '', text.strip()).removeprefix('./')


@dataclass
class Noise:
    """What compilers and checkers have said of some objects."""
    count: Counter              # of each warning, without line numbers: those move
    where: dict                 # file:line of the first of each
    unread: list                # files that sparse has errors in
    needs: dict = field(default_factory=dict)       # symbols of other objects: {symbol: object}
    defines: dict = field(default_factory=dict)     # global symbols, likewise


def symbols(text):
    """(needed, defined) global symbols in the output of nm -A: {symbol: object}."""
    needs, defines = {}, {}
    for line in text.splitlines():
        match = re.match(r'(\S+?):[ 0-9a-f]* ([A-Za-z]) (\S+)$', line)
        if match and match.group(2) == 'U':
            needs.setdefault(match.group(3), match.group(1))
        elif match and match.group(2) in 'TDBRVWC':
            defines.setdefault(match.group(3), match.group(1))
    return needs, defines


def _noise(place, text):
    """(the Noise of an output of make, the files sparse reads). Depending on where it has an
    error in a file, sparse leaves checks out."""
    found, where, read, unread, name = Counter(), {}, set(), set(), ''
    for line in text.splitlines():
        match = re.match(r'  CHECK +(\S+)', line)
        if match:
            name = inside_tree(place, match.group(1))
            read.add(name)
        # That of kernel-doc, which W=1 runs, has the kind in front, in newer trees.
        line = re.sub(r'^(Warning|Error): (\S+?\.[ch]:\d+):? (.*)',
                      lambda m: f'{m.group(2)}: {m.group(1).lower()}: kernel-doc: {m.group(3)}', line)
        match = re.match(r'(\S+?\.[chS]):(\d+):(?:\d+:)? *((?:sparse: )?(warning|error): .*)', line)
        if match:
            file = inside_tree(place, match.group(1))
            found[f'{file}: {match.group(3)}'] += 1
            where.setdefault(f'{file}: {match.group(3)}', f'{file}:{match.group(2)}')
            if match.group(4) == 'error' and 'kernel-doc' not in line:
                unread.add(name)
    return Noise(found, where, sorted(unread)), read


def _checker(place):
    """sparse, in the words that make takes: with the definitions that make it read this tree."""
    # Of trace points it reads nothing but stubs: it gives up on the long formats of some, and then
    # makes none of its checks in the files that define them.
    words = 'sparse -DNOTRACE'
    probe = place.path / 'scripts/checker-valid.sh'
    if not probe.exists() or run(['sh', str(probe), *words.split()], check=False)[1].strip() == '1':
        return words
    # The kernel asks for this operator, which sparse 0.6.4 does not have, and uses it with gcc 14.
    words += ' -D__typeof_unqual__=__typeof__'
    if run(['sh', str(probe), *words.split()], check=False)[1].strip() != '1':
        raise LabError('this sparse is too old for the tree', 'see scripts/checker-valid.sh there')
    return words


def compile_objects(place, commit, objects, out, config_hash, arch=build.NATIVE, sparse=True,
                    nm=False):
    """Build some objects of a commit with W=1, and sparse: a Noise. A LabError if it fails.

    nm: with their symbols.

    All of them are made, that all warnings come; of what is as it was, ccache makes it cheap.
    """
    checker = _checker(place) if sparse else ''
    version = run(['sparse', '--version'])[1] if sparse else ''
    key = cache.digest(trees.kernel_key(place, commit), config_hash, build.compiler(arch), version,
                       checker, ' '.join(objects), f'kernel-doc {nm}')
    kept = cache.path('objects', f'{key}.json')
    if not kept.exists():
        trees.checkout(place, commit)
        for name in objects:
            (out / name).unlink(missing_ok=True)
        log = cache.path('log', f'objects-{place.ident}.log')
        words = ['C=2', f'CHECK={checker}'] if sparse else []
        code, text = run(['nice', *build._make(place, out, f'-j{build.JOBS}', '-k',
                                               '--output-sync=target', 'W=1', *words, *objects,
                                               arch=arch)],
                         env=build._env(), check=False, log=log)
        bad = [o for o in objects if not (out / o).exists()]
        if code or bad:
            error = next((line for line in text.splitlines() if re.search(r'error[: ]', line)),
                         f'make: {code}, no {" ".join(bad)}')
            name = git(place.path, 'log', '-1', '--format=%s', commit)
            raise LabError(f'with "{name}" it does not build: {inside_tree(place, error)}',
                           f'see {log}')
        noise, read = _noise(place, text)
        left = [o for o in objects if sparse and o[:-2] + '.c' not in read]
        if left:
            raise LabError(f'sparse was not run on {" ".join(left)}', f'see {log}')
        if nm:
            _, text = run([f'{build.ARCHES[arch]}nm', '-A', *objects], cwd=out)
            noise.needs, noise.defines = symbols(text)
        part = kept.with_suffix('.part')
        part.write_text(json.dumps(vars(noise), indent=1))
        os.rename(part, kept)
    found = Noise(**json.loads(kept.read_text()))
    found.count = Counter(found.count)
    return found


def builds(place, mails):
    """Each prefix builds, and no patch adds a warning of W=1 or sparse: what was done, in words."""
    objects = _objects(place, mails)
    if not objects:
        return ['no file of the kernel proper is touched: nothing to build']
    out, config_hash = build.configure(place)
    before = compile_objects(place, mails[0].parent, objects, out, config_hash)
    start, lines = sum(before.count.values()), []
    for nr, mail in enumerate(mails, 1):
        after = compile_objects(place, mail.commit, objects, out, config_hash)
        more = after.count - before.count
        if more:
            raise LabError(f'patch {nr}, "{subject(place, mail)}", adds a warning: '
                           f'{next(iter(more))}')
        before = after
        lines.append(f'patch 1 to {nr}: {len(objects)} objects build with W=1 and sparse, '
                     f'{sum(after.count.values())} warnings ({start} on the base), none new')
    lines = [f'objects: {" ".join(objects)}'] + lines
    if before.unread:
        lines.append(f'sparse stumbles over {" ".join(before.unread)}, without the patches as '
                     'well, and may leave checks out there')
    return lines


def builds_tests(place, commit, tests, base):
    """The Makefile of the selftests builds the tests of a topic, without any other topic."""
    out, _ = build.configure(place)
    key = cache.digest(trees.selftests_key(place, commit), build.compiler(),
                       ' '.join(t.name for t in tests))
    kept = cache.path('send', f'tests-{key}')
    if kept.exists():
        return
    trees.checkout(place, commit)
    log = cache.path('log', f'send-tests-{place.ident}.log')
    run(['nice', *build._make(place, out, f'-j{build.JOBS}', 'headers')], env=build._env(), log=log)
    with tempfile.TemporaryDirectory(dir=kept.parent) as tmp:
        code, text = run(['nice', 'make', '-C', str(place.path / base.selftests), f'OUTPUT={tmp}',
                          f'KHDR_INCLUDES=-isystem {out}/usr/include',
                          *[f'{tmp}/{t.name}' for t in tests]], check=False, log=log)
        names = '|'.join([t.name for t in tests] + ['reclaim_util'])
        bad = re.search(rf'.*\b(?:{names})\.[ch]:\d+.*(?:warning|error).*', text)
        if code or bad:
            last = next((line for line in text.splitlines() if 'rror' in line), f'make: {code}')
            raise LabError('the tests of this posting do not build by themselves: '
                           + (bad.group(0) if bad else last).strip(), f'see {log}')
    kept.write_text('')


def checkpatch(place, path):
    """checkpatch --strict on a mail: as make check does, but that it has to be signed off."""
    words = check.checkpatch_options()
    at = words.index('MISSING_SIGN_OFF') if 'MISSING_SIGN_OFF' in words else 0
    if at:
        del words[at - 1:at + 1]
    code, out = run(['perl', str(place.path / 'scripts/checkpatch.pl'), '--strict', '--no-summary',
                     '--terse', f'--root={place.path}', *words, str(path)], cwd=place.path,
                    check=False, env={'PATH': '/usr/sbin:/usr/bin:/sbin:/bin'})
    if code or out.strip():
        raise LabError('checkpatch: ' + (out.strip().splitlines() or [f'exit {code}'])[0].replace(
            f'{path.parent}/', ''))


def round_trip(place, mbox, start, wanted):
    """b4 am and b4 shazam of the mbox, without a network, give the tree of the posting."""
    with tempfile.TemporaryDirectory() as tmp:
        config = Path(tmp) / 'gitconfig'
        # No server to ask, for the thread or for newer versions: the mbox has to be enough.
        config.write_text('[user]\n\tname = mm-reclaim lab\n\temail = lab@mm-reclaim.invalid\n'
                          '[safe]\n\tdirectory = *\n[gc]\n\tauto = 0\n'
                          '[b4]\n\tmidmask =\n\tsearchmask =\n\tattestation-policy = off\n')
        env = {'HOME': tmp, 'XDG_CACHE_HOME': tmp, 'XDG_DATA_HOME': tmp, 'XDG_CONFIG_HOME': tmp,
               'GIT_CONFIG_GLOBAL': str(config), 'GIT_CONFIG_SYSTEM': os.devnull}

        def same(what, code, out):
            have = place.tree_of('HEAD')
            if code or have != wanted:
                last = out.strip().splitlines()[-1:] or [f'exit {code}']
                raise LabError(f'{what} gives tree {have[:12]}, wanted {wanted[:12]}: {last[0]}')

        trees.checkout(place, start)
        code, out = run(['b4', '--offline-mode', 'am', '-o', tmp, '-n', 'posting', '-C',
                         '-m', str(mbox)], cwd=place.path, env=env, check=False)
        taken = sorted(Path(tmp).glob('posting*.mbx'))
        if code or not taken:
            raise LabError(f'b4 am: {(out.strip().splitlines() or [code])[-1]}')
        same('b4 am, then git am', *git(place.path, 'am', '-q', str(taken[0]), check=False))
        trees.checkout(place, start)
        same('b4 shazam', *run(['b4', '--offline-mode', 'shazam', '-C', '-m', str(mbox)],
                               cwd=place.path, env=env, check=False))
    trees.checkout(place, start)
