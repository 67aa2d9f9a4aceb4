# SPDX-License-Identifier: GPL-2.0
"""Get the source of a base, or a kernel, as Debian packages, with an apt state of our own.

apt's lists, its sources and what it downloads are kept in the cache. The
mirror is the one that the system is configured for; what comes from it is
checked against Debian's archive keyring. The system's own apt configuration,
lists and packages are read, and never changed.
"""

import os
import re
import shutil

from . import cache
from .ui import LabError, run, say

KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg'
# A container's apt may be told to keep no cache; each query would parse all lists again, for 2 s.
APT_CACHE = ['apt-cache', '-o', 'Dir::Cache::pkgcache=pkgcache.bin']


def _mirrors():
    """(archive, security archive): the configured mirror's, as addresses."""
    _, out = run(['apt-get', 'indextargets', '--format',
                  '$(RELEASE) $(REPO_URI)', 'Created-By: Packages'])
    archive = security = None
    for line in out.splitlines():
        release, _, uri = line.partition(' ')
        uri = uri.strip().rstrip('/')
        if not uri.startswith(('http:', 'https:', 'file:', 'copy:', 'mirror')):
            continue
        if release.endswith('-security'):
            security = security or uri
        elif uri.endswith('/debian') or '/debian/' in uri + '/':
            archive = archive or uri
    if archive and not security:
        security = archive + '-security'
    if not archive:
        raise LabError('no Debian mirror in the apt configuration of this system',
                       'add one to its sources, or use TREE=/path/to/linux')
    return archive, security


def _setup(suites):
    """Write the private apt configuration for `suites`; the environment to use it."""
    root = cache.path('apt', 'apt.conf').parent
    for sub in ('state/lists/partial', 'cache/archives/partial', 'parts', 'download'):
        (root / sub).mkdir(parents=True, exist_ok=True)
    archive, security = _mirrors()
    if not os.path.exists(KEYRING):
        raise LabError(f'{KEYRING} is missing', 'install debian-archive-keyring')
    with open(root / 'sources.list', 'w', encoding='utf-8') as out:
        for suite in suites:
            uri = security if suite.endswith('-security') else archive
            out.write(f'deb [signed-by={KEYRING}] {uri} {suite} main\n')
    with open(root / 'apt.conf', 'w', encoding='utf-8') as out:
        out.write(f'Dir::State "{root}/state";\n'
                  'Dir::State::status "/var/lib/dpkg/status";\n'
                  f'Dir::Cache "{root}/cache";\n'
                  f'Dir::Etc::SourceList "{root}/sources.list";\n'
                  f'Dir::Etc::SourceParts "{root}/parts";\n'
                  f'Dir::Etc::PreferencesParts "{root}/parts";\n'
                  # The cache need not be readable for the _apt user.
                  'APT::Sandbox::User "root";\n'
                  # A list that cannot be had is an error, not a warning.
                  'APT::Update::Error-Mode "any";\n'
                  'Acquire::Retries "2";\n')
    return root, {'APT_CONFIG': str(root / 'apt.conf')}


def update(what, suites, else_):
    """apt-get update for suites, of which `what` is wanted: (directory, environment of apt)."""
    if not shutil.which('apt-get'):
        raise LabError('this is not a Debian system: there is no apt-get to fetch '
                       f'{what} with', else_)
    root, env = _setup(suites)
    code, out = run(['apt-get', 'update', '-q'], env=env, check=False,
                    log=root / 'update.log')
    if code:
        why = next((line for line in out.splitlines() if line.startswith(('E:', 'Err'))),
                   'apt-get update failed')
        raise LabError(f'cannot fetch {what}: {why}', f'check the network, or {else_}')
    return root, env


def madison(env, name):
    """What apt has of a package, the newest first: [(version, suite)]."""
    _, out = run([*APT_CACHE, 'madison', name], env=env, check=False)
    found = [line.split('|') for line in out.splitlines() if line.count('|') >= 2]
    return [(version.strip(), where.split()[1].rpartition('/')[0])
            for _, version, where, *_ in found]


def download(root, env, name, version):
    """The .deb of a version of a package in the cache, downloaded if need be."""
    done = cache.path('deb', f'{name}_{version}.deb')
    if done.exists():
        return done
    shutil.rmtree(root / 'download')
    (root / 'download').mkdir()
    run(['apt-get', 'download', '-q', f'{name}={version}'], env=env,
        cwd=root / 'download', log=root / 'download.log')
    debs = list((root / 'download').glob('*.deb'))
    if len(debs) != 1:
        raise LabError(f'apt-get download of {name} left {len(debs)} files',
                       f'see {root}/download.log')
    os.rename(debs[0], done)
    return done


def same_version(env, name, version):
    """A package, and what it depends on in its own version, directly or not: names.

    A meta package has nothing but dependencies; and of late Debian has the modules and the image
    of a kernel in packages of their own.
    """
    names, todo = [], [name]
    while todo:
        names.append(todo.pop())
        _, out = run([*APT_CACHE, 'show', f'{names[-1]}={version}'], env=env)
        for line in re.findall(r'^(?:Pre-)?Depends: (.*)$', out, re.M):
            todo += [other for other, exact in re.findall(r'(\S+) \(= ([^)]+)\)', line)
                     if exact == version and other not in names + todo]
    return names


def package(base):
    """The .deb with the source of a base: (path, version), downloaded if need be.

    When the pinned version cannot be had any more, the newest one of the same
    package is taken, and said so.
    """
    done = cache.path('deb', f'{base.package}_{base.version}.deb')
    if done.exists():
        return done, base.version
    cache.need_space(f'the source package of {base.name}', 300)
    root, env = update(f'{base.package} {base.version}', base.suites,
                       'use TREE=/path/to/linux')
    versions = [version for version, _ in madison(env, base.package)]
    version = base.version
    if version not in versions:
        if not versions:
            raise LabError(f'{base.package} is in none of: {", ".join(base.suites)}',
                           'change the stanza in the file bases, or use TREE=/path/to/linux')
        version = versions[0]
        say(f'!!! {base.package} {base.version} IS GONE: taking {version} instead. The series is '
            'made for the pinned version; it must apply with no fuzz, offsets are shown.')
    return download(root, env, base.package, version), version
