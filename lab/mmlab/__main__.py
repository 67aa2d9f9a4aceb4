# SPDX-License-Identifier: GPL-2.0
"""python3 -m mmlab VERB: what the Makefile calls. Options come as environment variables."""

import importlib
import sys

from . import ui

VERBS = {'run': 'runner', 'check': 'check', 'report': 'evidence', 'profile': 'profile',
         'torture': 'torture', 'bisect': 'bisect', 'refresh': 'refresh', 'deps': 'deps',
         'send': 'send', 'jobs': 'jobs', 'field': 'field', 'suites': 'suites',
         'loads': 'loads', 'prefixes': 'prefixes', 'matrix': 'matrix'}


def main():
    """Dispatch a verb."""
    if len(sys.argv) < 2 or sys.argv[1] not in VERBS:
        print(f'usage: mmlab {"|".join(VERBS)}', file=sys.stderr)
        return 2
    module = importlib.import_module(f'.{VERBS[sys.argv[1]]}', __package__)

    def call():
        try:
            return module.main()
        finally:
            if (sys.argv[1] in ('run', 'report', 'profile', 'torture', 'bisect', 'field', 'suites',
                                'loads', 'matrix', 'prefixes')
                    and len(sys.argv) == 2):
                print('\n'.join(ui.budget()))
    return ui.main_guard(call)


if __name__ == '__main__':
    sys.exit(main())
