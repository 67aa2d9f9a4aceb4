# SPDX-License-Identifier: GPL-2.0
"""make report: its statistics, with answers that are known, and its pages."""

import contextlib
import io
import json
import os
import random
import re
import sys
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import helpers                                      # noqa: E402
from mmlab import evidence, ktap, page, profile     # noqa: E402
from mmlab.ui import LabError                       # noqa: E402

LOG = """\
MMLAB: boot 7.3.0-rc7 cpus=1 mem_kb=632548
MMLAB: begin test=a_test lru=classic
TAP version 13
1..3
# counters[first, device 0]: used=3
# counters[first]: majflt=1
# sample[first]: ms=0 nr_dirty=5
# sample[first]: ms=4 nr_dirty=9
MMLAB: at 1.500000001
ok 1 classic: first
# counters[first, of another]: majflt=7
MMLAB: at 2.000000004
ok 2 classic: first, of another
ok 3 classic: third
MMLAB: exit 0
MMLAB: seconds 2.100000000
MMLAB: end
"""


class Log(unittest.TestCase):
    """What ktap takes from a log for the report."""

    def setUp(self):
        self.result = ktap.parse_log(LOG)

    def test_pass(self):
        self.assertEqual((self.result.status, self.result.notes), ('PASS', []))

    def test_time_of_a_row_is_that_since_the_row_before(self):
        self.assertEqual([row.seconds for row in self.result.rows], [1.500000001, 0.500000003, None])

    def test_parts_of_a_row(self):
        first, other, _ = self.result.rows
        self.assertEqual((first.counters, first.parts), ({'majflt': 1}, {'device 0': {'used': 3}}))
        self.assertEqual((other.counters, other.parts), ({'majflt': 7}, {}))

    def test_samples(self):
        self.assertEqual(self.result.rows[0].samples,
                         [{'ms': 0, 'nr_dirty': 5}, {'ms': 4, 'nr_dirty': 9}])


class Statistics(unittest.TestCase):
    """Answers from tables and by counting."""

    def test_permutation_apart(self):
        self.assertEqual(evidence.permutation_p([1, 2, 3, 4], [5, 6, 7, 8]), 2 / 70)

    def test_permutation_overlap(self):
        # Sums of three of 1..6 that are 7 or less, or 14 or more: 123, 124, 356, 456.
        self.assertEqual(evidence.permutation_p([1, 2, 4], [3, 5, 6]), 4 / 20)

    def test_permutation_of_unequal_numbers(self):
        self.assertEqual(evidence.permutation_p([10], [1, 2, 3]), 1 / 4)

    def test_permutation_ties(self):
        # Any deal that keeps 0 0 on one side: 2 of 6.
        self.assertEqual(evidence.permutation_p([0, 0], [1, 1]), 2 / 6)
        self.assertEqual(evidence.permutation_p([3, 3], [3, 3]), 1)

    def test_permutation_at_random(self):
        one, two = list(range(12)), list(range(11, 23))
        p = evidence.permutation_p(one, two)
        self.assertEqual(p, evidence.permutation_p(one, two))
        self.assertLess(evidence.least_p(12, 12), p)
        self.assertLess(p, 0.001)
        self.assertEqual(evidence.least_p(12, 13), 1 / (evidence.EXACT + 1))
        # The same question, small enough to be counted out: the estimate is near.
        one, two = noisy(100, 20, 7), noisy(106, 20, 7)
        exact = evidence.permutation_p(one, two)
        with mock.patch.object(evidence, 'EXACT', 3000):
            self.assertAlmostEqual(evidence.permutation_p(one, two), exact, 1)

    def test_permutation_of_nothing(self):
        self.assertEqual(evidence.permutation_p([], [1]), 1)

    def test_least_p(self):
        self.assertEqual(evidence.least_p(4, 4), 2 / 70)
        self.assertEqual(evidence.least_p(8, 8), 2 / 12870)
        self.assertEqual(evidence.least_p(1, 3), 1 / 4)
        for one, two in (([1, 2, 3], [7, 8, 9]), ([1], [5, 6, 7])):
            self.assertEqual(evidence.permutation_p(one, two), evidence.least_p(len(one), len(two)))

    def test_holm(self):
        for got, want in zip(evidence.holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02]):
            self.assertAlmostEqual(got, want)
        self.assertEqual(evidence.holm([0.9, 0.8]), [1, 1])
        self.assertEqual(evidence.holm([]), [])

    def test_t_quantile(self):
        for p, df, want in ((0.975, 1, 12.7062), (0.975, 2, 4.3027), (0.975, 7, 2.3646),
                            (0.95, 10, 1.8125), (0.975, 30, 2.0423), (0.975, 1000, 1.9623)):
            self.assertAlmostEqual(evidence.t_quantile(p, df), want, 3)

    def test_interval(self):
        # Variances of 2 with 2 runs each: t of 2 degrees of freedom times the root of 2.
        low, high = evidence.interval([0, 2], [10, 12])
        self.assertAlmostEqual(low, 10 - 6.0849, 3)
        self.assertAlmostEqual(high, 10 + 6.0849, 3)
        self.assertEqual(evidence.interval([5, 5], [7, 7]), (2, 2))
        self.assertIsNone(evidence.interval([5], [7, 7]))

    def test_interval_covers_what_it_says(self):
        rng, hits = random.Random(2), 0
        for _ in range(1000):
            low, high = evidence.interval([rng.gauss(0, 1) for _ in range(8)],
                                          [rng.gauss(3, 4) for _ in range(8)])
            hits += low <= 3 <= high
        self.assertTrue(925 <= hits <= 975, hits)


def results(values, mode='icount', base_state='not ok', seconds=None, **more):
    """Results of a test with a row for each of `values`: {row: {counter: (base, patched)}}."""
    runs = []
    number = max(len(side) for counters in values.values() for pair in counters.values() for side in pair)
    for n in range(1, number + 1):
        for side, kernel in enumerate(('base', 'patched')):
            rows = []
            for i, (name, counters) in enumerate(values.items(), 1):
                got = {key: pair[side][n - 1] for key, pair in counters.items() if n <= len(pair[side])}
                rows.append({'number': i, 'name': name, 'status': 'ok' if side else base_state,
                             'counters': got, 'seconds': got.pop('s', None)})
            runs.append({'kernel': kernel, 'test': 'a_test', 'lru': 'classic', 'n': n, 'status': 'PASS',
                         'rows': rows, 'seconds': seconds and seconds[side][n - 1], 'as_expected': True,
                         'expected': 'PASS', 'how': f'way {n}', 'why': ''})
    return {'base': 'mainline', 'version': '7.3', 'mode': mode, 'runs': runs, 'reproduce': 'make report X=1',
            'kernels': [{'name': name, 'desc': name, 'key': 'k', 'bad': ''} for name in ('base', 'patched')], **more}


def verdicts(found):
    """{(row, key): verdict} of the first table."""
    return {(line.row, line.key): line.verdict for line in evidence.tables(found)[0].lines}


def noisy(mean, width, n=8):
    """Whole numbers about a mean, the same ones each time."""
    return [mean + (i * 5 % n - n // 2) * width // n for i in range(n)]


class Verdict(unittest.TestCase):
    """evidence.tables()"""

    def verdict(self, key, base, patched, **more):
        return verdicts(results({'row': {key: (base, patched)}}, **more))['row', key]

    def test_direction(self):
        low, high = [10] * 8, [20] * 8
        self.assertEqual(self.verdict('majflt', high, low), 'better')
        self.assertEqual(self.verdict('majflt', low, high), 'worse')
        self.assertEqual(self.verdict('direct_efficiency', low, high), 'better')
        self.assertEqual(self.verdict('pswpout', low, high), 'differs')
        self.assertEqual(self.verdict('a_name_of_the_test', low, high), 'differs')

    def test_below_the_floor(self):
        # Never in one order, as they overlap: at most what two runs of one kernel differ by.
        self.assertEqual(self.verdict('majflt', noisy(1000, 16), noisy(1005, 16)), 'same')
        self.assertEqual(self.verdict('majflt', [7] * 8, [7] * 8), 'same')

    def test_below_the_floor_however_small_p_is(self):
        base, patched = [1000 + i for i in range(8)], [1008 + i for i in range(8)]
        patched[7] = 1030       # the floor is 22
        found = evidence.tables(results({'row': {'majflt': (base, patched)}}))[0].lines[0]
        self.assertLess(found.holm, 0.05)
        self.assertEqual((found.floor, found.verdict), (22, 'same'))

    def test_the_floor_hides_too_much(self):
        self.assertEqual(self.verdict('majflt', noisy(1000, 800), noisy(1100, 800)), 'too noisy')

    def test_too_few(self):
        self.assertEqual(self.verdict('majflt', [10] * 3, [20] * 3), 'too few runs')
        self.assertEqual(self.verdict('majflt', [10], [20]), 'not judged')

    def test_too_few_for_so_many_lines(self):
        # p is 2/924 at best, and 2/12870: of fifty lines Holm leaves 0.11, and 0.008.
        for n, verdict in ((6, 'too few runs'), (8, 'worse')):
            rows = {f'row {i}': {'majflt': ([10] * n, [20] * n)} for i in range(50)}
            self.assertEqual(set(verdicts(results(rows)).values()), {verdict})

    def test_times(self):
        base = [1 + i / 1e6 for i in range(8)]
        faster = [0.5 + i / 1e6 for i in range(8)]
        exact = results({'row': {'s': (base, faster)}})
        self.assertEqual(verdicts(exact)['row', 'seconds'], 'better')
        few = results({'row': {'s': (base[:7], faster[:7])}})
        self.assertEqual(verdicts(few)['row', 'seconds'], 'not judged')
        real = results({'row': {'s': (base, faster)}}, mode='tcg')
        self.assertEqual(verdicts(real)['row', 'seconds'], 'not judged')

    def test_times_that_a_test_took_itself(self):
        self.assertEqual(self.verdict('p99_us', [9] * 8, [5] * 8), 'better')
        for key in ('p99_us', 'ms', 'read_ms'):
            self.assertEqual(self.verdict(key, [9] * 8, [5] * 8, mode='tcg'), 'not judged')
            self.assertEqual(self.verdict(key, [9] * 7, [5] * 7), 'not judged')
        self.assertNotEqual(self.verdict('atoms', [9] * 8, [5] * 8, mode='tcg'), 'not judged')

    def test_time_of_the_test(self):
        found = results({'row': {'majflt': ([1] * 8, [1] * 8)}}, seconds=([2.0] * 8, [2.5] * 8))
        self.assertEqual(verdicts(found)[evidence.WHOLE_TEST, 'seconds'], 'worse')

    def test_worsened_first(self):
        rows = {'better': {'majflt': ([20] * 8, [10] * 8)}, 'same': {'majflt': ([5] * 8, [5] * 8)},
                'worse': {'majflt': ([10] * 8, [20] * 8)}}
        self.assertEqual([line.row for line in evidence.tables(results(rows))[0].lines],
                         ['worse', 'better', 'same'])

    def test_what_is_one_number_is_not_tested(self):
        rows = {f'row {i}': {'majflt': ([i] * 8, [i] * 8)} for i in range(1000)}
        rows['other'] = {'majflt': ([10] * 8, [20] * 8)}
        table = evidence.tables(results(rows))[0]
        self.assertEqual((table.tested, table.lines[0].verdict), (1, 'worse'))

    def test_noise_alone_finds_nothing(self):
        rng = random.Random(3)

        def draw():
            return [1000 + round(rng.gauss(0, 5)) for _ in range(8)]
        found = verdicts(results({f'row {i}': {'majflt': (draw(), draw())} for i in range(100)}))
        self.assertFalse({'better', 'worse'} & set(found.values()))

    def test_derived(self):
        found = results({'row': {'pgscan_direct': ([200] * 8, [100] * 8), 'pgsteal_direct': ([50] * 8, [50] * 8),
                                 'pgscan_kswapd': ([0] * 8, [0] * 8), 'pgsteal_kswapd': ([0] * 8, [0] * 8)}})
        lines = {line.key: line for line in evidence.tables(found)[0].lines}
        self.assertEqual((lines['direct_efficiency'].base[0], lines['direct_efficiency'].patched[0]), (25, 50))
        self.assertEqual(lines['direct_percentage'].base[0], 100)
        self.assertNotIn('kswapd_efficiency', lines)        # nothing was scanned

    def test_parts(self):
        found = results({'row': {'majflt': ([1] * 8, [1] * 8)}})
        for run in found['runs']:
            run['rows'][0]['parts'] = {'device 1': {'used': 4}}
        self.assertIn(('row, device 1', 'used'), verdicts(found))

    def test_on_one_kernel_only(self):
        found = results({'row': {'majflt': ([1] * 8, [])}})
        self.assertEqual(verdicts(found)['row', 'majflt'], 'not judged')


class Varied(unittest.TestCase):
    """evidence.VARIATIONS"""

    TEST = evidence.bases.Test('a_test', 'topic', 'report', 640, 1, 60, [], '')

    def test_enough_and_mixed(self):
        first = evidence.VARIATIONS[:evidence.RUNS]
        self.assertGreaterEqual(len(first), 8)
        self.assertGreaterEqual(evidence.RUNS, evidence.MIN_VARIATIONS)
        for kind in ('pad', 'env', 'mem', 'delay', 'initrd'):
            self.assertTrue(any(getattr(v, kind) for v in first), kind)

    def test_no_two_are_alike(self):
        with tempfile.TemporaryDirectory() as tmp:
            image = Path(tmp) / 'x.gz'
            image.write_bytes(b'image')
            self.assertEqual(len({str(v.of(self.TEST, image)) for v in evidence.VARIATIONS}),
                             len(evidence.VARIATIONS))
            self.assertEqual(len({v.text for v in evidence.VARIATIONS}), len(evidence.VARIATIONS))

    def test_delays_are_not_whole_ticks(self):
        delays = {v.delay % 4000 for v in evidence.VARIATIONS if v.delay}
        self.assertGreaterEqual(len(delays - {0}), 3)

    def test_all_tests_stay_on_their_side(self):
        for test in evidence.bases.load_tests().values():
            for v in evidence.VARIATIONS:
                guest, _, _ = v.of(test, Path('x')) if not v.initrd else (test, None, None)
                self.assertEqual(guest.memory < 544, test.memory < 544)

    def test_across_a_threshold(self):
        small = evidence.replace(self.TEST, memory=508)
        with self.assertRaisesRegex(LabError, 'other side of a threshold'):
            evidence.Variation('x', mem=8).of(small, Path('x'))

    def test_initramfs(self):
        with tempfile.TemporaryDirectory() as tmp:
            image = Path(tmp) / 'x.gz'
            image.write_bytes(b'image')
            _, padded, _ = evidence.Variation('x', initrd=1).of(self.TEST, image)
            self.assertEqual(padded.read_bytes(), b'image' + bytes(1024))


class Options(unittest.TestCase):
    """Make variables."""

    def options(self, **env):
        with mock.patch.dict(os.environ, env, clear=True):
            return evidence.Options.from_env()

    def test_defaults(self):
        opts = self.options()
        self.assertEqual((opts.mode, opts.runs, opts.mutant_runs, opts.mutants), ('icount', 8, 1, True))
        self.assertEqual(opts.command(SimpleNamespace(name='6.1')), 'make report BASE=6.1')

    def test_given(self):
        opts = self.options(MODE='tcg', RUNS='4', MUTANTS='9', TESTS='a b')
        self.assertEqual((opts.mode, opts.runs, opts.mutant_runs), ('tcg', 4, 4))
        self.assertEqual(opts.command(SimpleNamespace(name='6.1')),
                         'make report BASE=6.1 TESTS="a b" MODE=tcg RUNS=4 MUTANTS=4')
        self.assertFalse(self.options(MUTANTS='0').mutants)

    def test_refused(self):
        for env, text in (({'RUNS': '13'}, 'RUNS=13'), ({'MUTANTS': 'x'}, 'MUTANTS='),
                          ({'RUNS': 'x'}, 'RUNS='), ({'MUTANTS': '-1'}, 'MUTANTS=')):
            with self.assertRaisesRegex(LabError, text):
                self.options(**env)


class Page(HTMLParser):
    """What a page is made of; raises where tags do not nest."""

    VOID = {'meta', 'br', 'rect', 'path', 'circle', 'link', 'img', 'input', 'hr'}

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text = [], [], {}
        self.feed(text)
        self.close()
        if self.open:
            raise AssertionError(f'not closed: {self.open}')

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs), [name for name, _ in self.open]))
        if tag not in self.VOID:
            self.open.append((tag, len(self.tags) - 1))

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs), [name for name, _ in self.open]))

    def handle_endtag(self, tag):
        name, _ = self.open.pop()
        if name != tag:
            raise AssertionError(f'</{tag}> closes <{name}>')

    def handle_data(self, data):
        if self.open:
            nr = self.open[-1][1]
            self.text[nr] = self.text.get(nr, '') + data

    def all(self, *names):
        return [(tag, attrs) for tag, attrs, _ in self.tags if tag in names]


def sample_runs():
    """A report with all there is: plots of each kind, mutants, what is not as expected."""
    rows = {'1 group: stalls': {'allocstall': ([50] * 8, [5] * 8)},
            '4 groups: stalls': {'allocstall': ([90] * 8, [6] * 8)},
            '16 groups: stalls': {'allocstall': ([200] * 8, noisy(7, 2))},
            'a <script> & "row"|': {'unmapped_left': ([900] * 8, noisy(30, 5)), 'x': ([1] * 8, [1] * 8)},
            'slower': {'majflt': ([3] * 8, [9] * 8)}}
    found = results(rows, seconds=([2.0] * 8, [2.5] * 8), date='2026-11-30', qemu='QEMU 7', config_hash='abc',
                    series_tree='def')
    for run in found['runs']:
        run['rows'][4]['samples'] = [{'ms': t, 'nr_dirty': t * t} for t in range(0, 50, 10)]
    mutant = dict(found['runs'][0], kernel='mutant:x', status='FAIL', expected='FAIL', as_expected=False,
                  why='failed unexpectedly: slower', rows=[dict(found['runs'][0]['rows'][0], status='not ok')])
    found['runs'].append(mutant)
    found['kernels'].append({'name': 'mutant:x', 'desc': 'a bug', 'key': 'm', 'bad': ''})
    return [(found, evidence.tables(found), evidence.mutants(found))]


class Pages(unittest.TestCase):
    """report.html and report.md"""

    @classmethod
    def setUpClass(cls):
        cls.runs = sample_runs()
        cls.html, cls.md = page.html(cls.runs), page.markdown(cls.runs)
        cls.page = Page(cls.html)

    def test_headings_are_in_order(self):
        levels = [int(tag[1]) for tag, _ in self.page.all('h1', 'h2', 'h3', 'h4')]
        self.assertEqual(levels[0], 1)
        self.assertEqual(levels.count(1), 1)
        for before, after in zip(levels, levels[1:]):
            self.assertLessEqual(after, before + 1)

    def test_tables(self):
        self.assertTrue(self.page.all('table'))
        for _, attrs in self.page.all('th'):
            self.assertIn(attrs.get('scope'), ('row', 'col'))
        self.assertEqual(len(self.page.all('caption')), len(self.page.all('table')))

    def test_each_row_has_all_cells(self):
        for part in self.html.split('<table>')[1:]:
            part = part.split('</table>')[0]
            width = part.count('scope="col"')
            for row in part.split('<tr')[2:]:
                self.assertEqual(row.count('<td') + row.count('<th'), width)

    def test_plots_are_named_and_have_their_numbers(self):
        svgs = self.page.all('svg')
        kinds = {plot.kind for plot in page.document(self.runs) if isinstance(plot, page.Plot)}
        self.assertEqual(kinds, {'bars', 'counts', 'time'})
        ids = {attrs['id'] for _, attrs, _ in self.page.tags if 'id' in attrs}
        for _, attrs in svgs:
            self.assertEqual(attrs['role'], 'img')
            for name in attrs['aria-labelledby'].split():
                self.assertIn(name, ids)
        for part in self.html.split('<figure>')[1:]:
            self.assertIn('<figcaption>', part)
            self.assertIn('<table>', part.split('</figure>')[0])

    def test_ids(self):
        ids = [attrs['id'] for _, attrs, _ in self.page.tags if 'id' in attrs]
        self.assertEqual(len(ids), len(set(ids)))
        for _, attrs, _ in self.page.tags:
            for name in attrs.get('aria-labelledby', '').split():
                self.assertIn(name, ids)
            if attrs.get('href', '').startswith('#'):
                self.assertIn(attrs['href'][1:], ids)

    def test_no_script_and_nothing_from_elsewhere(self):
        self.assertFalse(self.page.all('script', 'link', 'img', 'iframe', 'object'))
        for _, attrs, _ in self.page.tags:
            self.assertFalse([key for key in attrs if key.startswith('on') or key == 'src'])
        self.assertNotRegex(self.html, r'https?:|url\(|@import|javascript:')

    def test_keyboard_and_landmarks(self):
        tags = [(tag, attrs) for tag, attrs, parents in self.page.tags if 'body' in parents]
        self.assertEqual(tags[0], ('a', {'class': 'skip', 'href': '#main'}))
        self.assertEqual([attrs['id'] for _, attrs in self.page.all('main')], ['main'])
        for name in ('header', 'nav', 'main', 'footer'):
            self.assertEqual(len(self.page.all(name)), 1)
        self.assertEqual(self.page.all('html')[0][1], {'lang': 'en'})
        for _, attrs in self.page.all('div'):
            if attrs['class'] == 'scroll':
                self.assertEqual((attrs['tabindex'], attrs['role']), ('0', 'region'))
        self.assertIn(':focus-visible', self.html)
        self.assertIn('prefers-color-scheme:dark', self.html)

    def test_contrast(self):
        """4.5 to 1 for text, 3 to 1 for what is drawn."""
        def light(colour):
            colour = colour.lstrip('#')
            colour = ''.join(c * 2 for c in colour) if len(colour) == 3 else colour
            parts = [int(colour[i:i + 2], 16) / 255 for i in (0, 2, 4)]
            parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
        themes = re.findall(r':root\{(.*?)\}', page.STYLE, re.S)
        self.assertEqual(len(themes), 2)
        for theme in themes:
            names = dict(re.findall(r'--(\w+):(#\w+)', theme))
            for name, least in (('fg', 7), ('link', 4.5), ('worse', 4.5), ('better', 4.5), ('odd', 4.5),
                                ('base', 3), ('patched', 3), ('rule', 3)):
                for ground in ('bg', 'soft') if least >= 4.5 else ('bg',):
                    one, two = sorted((light(names[name]), light(names[ground])))
                    self.assertGreaterEqual((two + 0.05) / (one + 0.05), least, (theme, name, ground))

    def test_escaped(self):
        self.assertNotIn('<script', self.html)
        self.assertIn('a &lt;script&gt; &amp; &quot;row&quot;|', self.html)
        self.assertIn('"row"\\|', self.md)

    def test_what_has_to_be_in_it(self):
        for text in (self.html, self.md):
            for part in ('make report X=1', 'QEMU 7', 'abc', 'def', 'way 3', 'Allocation stalls',
                         'What emulation cannot show', 'TLB', 'Not as expected: mainline mutant:x',
                         'in 1 of 1', '0.00016', 'Not measured on hardware'):
                self.assertIn(part, text)

    def test_worsened_first(self):
        table = self.md.split('what is not the same')[1].split('\n\n')[1].splitlines()[2:]
        words = [line.split('|')[-2].strip() for line in table]
        self.assertEqual(words[0], 'worse')
        self.assertEqual(sorted(words, key=evidence.ORDER.index), words)

    def test_markdown_tables_are_whole(self):
        for block in self.md.split('\n\n'):
            if block.startswith('|'):
                widths = {len(re.findall(r'(?<!\\)\|', line)) for line in block.splitlines()}
                self.assertEqual(len(widths), 1, block[:200])

    def test_plots_come_from_the_data(self):
        found = results({'row': {'majflt': ([7] * 8, [7] * 8)}})
        runs = [(found, evidence.tables(found), [])]
        self.assertFalse([b for b in page.document(runs) if isinstance(b, page.Plot)])
        self.assertNotIn('Plots', page.html(runs))

    def test_numbers_that_are_nothing(self):
        found = results({'1 group': {'majflt': ([0] * 8, [0] * 8)}, '2 groups': {'majflt': ([0] * 8, [3] * 8)}})
        Page(page.html([(found, evidence.tables(found), [])]))


class Profile(unittest.TestCase):
    """mmlab.profile"""

    def test_log(self):
        text = LOG.replace('MMLAB: seconds', 'MMLAB: profile shrink_list.isra.0 3 2.500\n'
                           'MMLAB: profile shrink_list 1 0.250\nMMLAB: profile broken 1\nMMLAB: seconds')
        result = ktap.parse_log(text)
        self.assertEqual(result.status, 'PASS')
        self.assertEqual(result.profile, {'shrink_list.isra.0': [3, 2.5], 'shrink_list': [1, 0.25]})
        self.assertEqual(profile.functions(result.profile), {'shrink_list': (4, 2750)})

    def test_cpus_add_up(self):
        text = LOG.replace('MMLAB: seconds', 'MMLAB: profile f 3 2.500\nMMLAB: profile f 1 0.250\n'
                           'MMLAB: seconds')
        self.assertEqual(ktap.parse_log(text).profile, {'f': [4, 2.75]})

    def test_movers(self):
        base = {'same': (5, 50), 'less': (9, 900), 'gone': (1, 10)}
        patched = {'same': (5, 50), 'less': (2, 100), 'new': (4, 10)}
        self.assertEqual(profile.movers(base, patched, 0),
                         [('less', 9, 2, -7), ('new', 0, 4, 4), ('gone', 1, 0, -1)])
        self.assertEqual([entry[0] for entry in profile.movers(base, patched, 1)], ['less', 'gone', 'new'])

    def test_tables(self):
        calls, time = profile.grids('a test', {'f': (2, 100)}, {'f': (3, 100)})
        self.assertEqual(time.rows, [])
        self.assertEqual(calls.rows, [['all functions', '2', '3', '+1 (+50.0 %)'],
                                      ['f', '2', '3', '+1 (+50.0 %)']])

    def test_other_modes_are_refused(self):
        with mock.patch.dict(os.environ, {'MODE': 'tcg'}), self.assertRaisesRegex(LabError, 'MODE=tcg'):
            profile.main()


class Make(unittest.TestCase):
    """python3 -m mmlab report"""

    @classmethod
    def setUpClass(cls):
        cls.project = helpers.Project()

    @classmethod
    def tearDownClass(cls):
        cls.project.close()

    def test_abab_and_the_pages(self):
        got = self.project.run('report', BASE='mainline', LRU='classic', MODE='icount', RUNS=3)
        self.assertEqual(got.code, 0, got.out + got.err)
        booted = re.findall(r'\d+/\d+ (\S+) aging', got.out)
        mutants = [name for name in booted if name not in ('base', 'patched')]
        self.assertEqual([name for name in booted if name not in mutants], ['base', 'patched'] * 3)
        self.assertEqual(len(mutants), len(set(mutants)))
        directory = Path(re.search(r'^report: (.*)/report.html', got.out, re.M).group(1))
        Page((directory / 'report.html').read_text())
        self.assertIn('make report BASE=mainline LRU=classic RUNS=3', (directory / 'report.md').read_text())
        runs = json.loads((directory / 'results.json').read_text())['runs']
        self.assertEqual(len({run['how'] for run in runs}), 3)
        again = self.project.run('report', FROM=directory)
        self.assertEqual((again.code, self.project.boots()), (0, 0), again.err)

    def test_goes_on_where_it_was(self):
        with self.project.having('bin/qemu.mode', 'nostart 3\n'):
            broken = self.project.run('report', BASE='mainline', LRU='mglru', MODE='icount', RUNS=2, MUTANTS=0)
        self.assertEqual(broken.code, 2, broken.out)
        got = self.project.run('report', BASE='mainline', LRU='mglru', MODE='icount', RUNS=2, MUTANTS=0)
        self.assertEqual(got.code, 0, got.out + got.err)
        self.assertIn('2 of 4 boots are done', got.out)
        self.assertEqual(self.project.boots(), 2)

    def test_several_bases_on_one_page(self):
        with tempfile.TemporaryDirectory() as tmp:
            for base in ('mainline', '6.1'):
                found = dict(sample_runs()[0][0], base=base, version=f'version of {base}')
                (Path(tmp) / base).mkdir()
                (Path(tmp) / base / 'results.json').write_text(json.dumps(found))
            env = {'FROM': f'{tmp}/mainline {tmp}/6.1', 'RESULTS': f'{tmp}/both'}
            with mock.patch.dict(os.environ, env), contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(evidence.main(), 1)        # a run is not as expected
            text = (Path(tmp) / 'both/report.html').read_text()
        headings = re.findall(r'<h3 id="\w+">([^<]*)', text)
        self.assertEqual([h for h in headings if h.startswith('a_test')],
                         ['a_test, classic LRU, version of mainline', 'a_test, classic LRU, version of 6.1'])
        Page(text)

    def test_from_what_is_none(self):
        with tempfile.TemporaryDirectory() as tmp:
            for text, why in ((None, 'there is no results.json'), ('{', 'is not that of a run'),
                              ('{"runs": []}', 'is not that of a run')):
                if text is not None:
                    (Path(tmp) / 'results.json').write_text(text)
                with mock.patch.dict(os.environ, {'FROM': tmp}), contextlib.redirect_stdout(io.StringIO()):
                    with self.assertRaisesRegex(LabError, why):
                        evidence.main()


if __name__ == '__main__':
    unittest.main()
