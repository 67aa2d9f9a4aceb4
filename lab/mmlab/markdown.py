# SPDX-License-Identifier: GPL-2.0
"""Sections of the pages in Documentation/, as plain text for mails."""

import re
import textwrap

WIDTH = 72
TABLE = 78      # tables are wrapped beyond that


def section(page, name):
    """The text below a heading of any level, up to the next one of the same level; or None."""
    match = re.search(rf'^(#+) {re.escape(name)}$', page, re.M)
    if not match:
        return None
    rest = page[match.end():]
    end = re.search(rf'^#{{1,{len(match.group(1))}}} ', rest, re.M)
    return rest[:end.start() if end else None].strip()


def _inline(text):
    """Without marks: `code`, **strong**, *emphasis*, [text](link)."""
    text = re.sub(r'\[([^\]]*)\]\((https?://[^)]*)\)', r'\1 <\2>', text)
    text = re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', text)
    text = re.sub(r'\*\*([^*]+)\*\*', r'\1', text)
    text = re.sub(r'(?<![\w*])\*([^*\s][^*]*)\*(?![\w*])', r'"\1"', text)
    return text.replace('`', '')


def _table(lines):
    rows = [[_inline(cell.strip()) for cell in re.split(r'(?<!\\)\|', line.strip().strip('|'))]
            for line in lines if not re.fullmatch(r'[|\s:-]+', line)]
    widths = [max(len(row[i]) if i < len(row) else 0 for row in rows)
              for i in range(max(map(len, rows)))]
    while sum(widths) + 2 * (len(widths) - 1) > TABLE and max(widths) > 8:
        widths[widths.index(max(widths))] -= 1
    out = []
    for row in rows:
        cells = [textwrap.wrap(cell, width) or [''] for cell, width in zip(row, widths)]
        for nr in range(max(map(len, cells))):
            out.append('  '.join((cell[nr] if nr < len(cell) else '').ljust(width)
                                 for cell, width in zip(cells, widths)).rstrip())
    return out


def _fill(text, first='', rest=''):
    return textwrap.wrap(_inline(text), WIDTH, initial_indent=first, subsequent_indent=rest,
                         break_long_words=False, break_on_hyphens=False)


def plain(text):
    """Markdown as text that a mail takes: paragraphs and lists filled, the rest as it is."""
    out, lines, at = [], text.splitlines(), 0
    while at < len(lines):
        line = lines[at]
        if line.startswith('```'):
            at += 1
            while at < len(lines) and not lines[at].startswith('```'):
                out.append('    ' + lines[at])
                at += 1
            at += 1
            continue
        if not line.strip() or line.startswith('    '):
            out.append(line.rstrip())
            at += 1
            continue
        heading = re.match(r'#+ (.*)', line)
        if heading:
            name = _inline(heading.group(1))
            out += [name, '-' * len(name)]
            at += 1
            continue
        if line.startswith('|'):
            end = at
            while end < len(lines) and lines[end].startswith('|'):
                end += 1
            out += _table(lines[at:end])
            at = end
            continue
        item = re.match(r'( *)((?:[-*]|\d+\.) +)(.*)', line)
        indent = len(item.group(1) + item.group(2)) if item else 0
        words, at = [item.group(3) if item else line], at + 1
        while at < len(lines) and lines[at].strip() and not re.match(
                r' *(?:[-*]|\d+\.) |#|\||```', lines[at]):
            words.append(lines[at].strip())
            at += 1
        first = item.group(1) + item.group(2) if item else ''
        out += _fill(' '.join(words), first, ' ' * indent)
    return '\n'.join(out).strip()
