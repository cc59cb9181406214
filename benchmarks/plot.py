# SPDX-License-Identifier: Apache-2.0
"""The plot of a benchmark run: GB/s against the bytes that a call touches, one panel for each number of threads.

Used by table.py, whose Results it reads. Colours are of the set that Okabe and Ito made for colour-blind readers.
"""
import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 520, 340, 56, 32, 36, 44
# What is drawn: label, benchmark, counter, colour, dashes.
SERIES = [("plain read", "check/fp32", "read_GBps", "#000000", "6 4"),
          ("check fp16", "check/fp16", "GBps", "#0072b2", ""),
          ("check fp32", "check/fp32", "GBps", "#56b4e9", ""),
          ("best copy", "step/adamw/fp32", "copy_GBps", "#7f7f7f", "6 4"),
          ("AdamW fp32", "step/adamw/fp32", "GBps", "#d55e00", ""),
          ("AdamW fp16 + master", "step/adamw/fp16_master", "GBps", "#e69f00", ""),
          ("whole tail fp16 + master", "tail/adamw/fp16_master", "GBps", "#009e73", "")]


def size_label(log2):
    return f"{2 ** (log2 % 10)} {['B', 'KiB', 'MiB', 'GiB'][log2 // 10]}"


def lines_of(results, threads):
    lines = []
    for label, key, counter, colour, dashes in SERIES:
        points = [(s, r[counter]) for s in results.sizes if (r := results.find(key, threads, s))]
        if points:
            lines.append((label, points, colour, dashes))
    return lines


def panel(results, threads, lines, low, high, left, top):
    """One panel with GB/s from 2^low to 2^high."""
    sizes = results.sizes
    span = max(sizes[-1] - sizes[0], 1)

    def x(log2):
        return left + LEFT + (WIDTH - LEFT - RIGHT) * (log2 - sizes[0]) / span

    def y(value):
        return top + TOP + (HEIGHT - TOP - BOTTOM) * (high - math.log2(value)) / max(high - low, 1)

    out = [f'<text x="{left + WIDTH / 2}" y="{top + 20}" text-anchor="middle" font-weight="bold">'
           f'{threads} thread{"s" * (threads > 1)}</text>']
    for exponent in range(low, high + 1):
        at = y(2.0**exponent)
        out.append(f'<line x1="{x(sizes[0]):.1f}" y1="{at:.1f}" x2="{x(sizes[-1]):.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{left + LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{2.0**exponent:g}</text>')
    for s in sizes[::max(1, len(sizes) // 5)]:
        out.append(f'<text x="{x(s):.1f}" y="{top + HEIGHT - BOTTOM + 18}" text-anchor="middle">{size_label(s)}</text>')
    out.append(f'<text x="{left + WIDTH / 2}" y="{top + HEIGHT - 8}" text-anchor="middle">'
               'bytes that a call touches</text>')
    middle = top + HEIGHT / 2
    out.append(f'<text x="{left + 14}" y="{middle}" text-anchor="middle" '
               f'transform="rotate(-90 {left + 14} {middle})">GB/s</text>')
    for _, points, colour, dashes in lines:
        path = " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" '
                   f'stroke-dasharray="{dashes or "none"}"/>')
        out += [f'<circle cx="{x(s):.1f}" cy="{y(v):.1f}" r="2.5" fill="{colour}"/>' for s, v in points]
    return out


def svg(results):
    """The plot as the text of an SVG file."""
    panels = [(threads, lines) for threads in results.threads if (lines := lines_of(results, threads))]
    values = [v for _, lines in panels for _, points, _, _ in lines for _, v in points]
    low, high = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    width, body, legend = WIDTH * len(panels), [], panels[0][1]
    for i, (threads, lines) in enumerate(panels):
        body += panel(results, threads, lines, low, high, i * WIDTH, 0)
    columns = max(1, width // 200)
    for i, (label, _, colour, dashes) in enumerate(legend):
        at_x, at_y = 20 + (i % columns) * 200, HEIGHT + 16 + (i // columns) * 20
        body.append(f'<line x1="{at_x}" y1="{at_y}" x2="{at_x + 26}" y2="{at_y}" stroke="{colour}" stroke-width="2" '
                    f'stroke-dasharray="{dashes or "none"}"/>')
        body.append(f'<text x="{at_x + 32}" y="{at_y + 4}">{label}</text>')
    height = HEIGHT + 20 + 20 * math.ceil(len(legend) / columns)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n' +
            "\n".join(body) + "\n</svg>\n")
