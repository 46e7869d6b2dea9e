# SPDX-License-Identifier: MIT
"""Plots as SVG: lines over a logarithmic axis, and bars."""
import html
import math

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 860, 460, 80, 40, 210, 50
COLOURS = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#777777", "#e07b00",
           "#000000"]  # fmt: skip
BAR = 22


def text(x, y, words, **more):
    style = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in more.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{style}>{html.escape(words)}</text>'


def line(x1, y1, x2, y2, colour="#dddddd"):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def document(height, parts):
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        f' viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>', *parts, "</svg>", "",
    ])  # fmt: skip


def short(value):
    """0.01, 5 M: few characters for an axis."""
    for limit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g} {name}"
    return f"{value:g}"


def size_name(size):
    for shift, name in ((20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size >> shift} {name}"
    return f"{size} B"


class LogAxis:
    """From values to places between @first and @last, with a mark at every power of ten."""

    def __init__(self, values, first, last):
        self.low = math.floor(math.log10(min(values)))
        self.high = max(math.ceil(math.log10(max(values))), self.low + 1)
        self.first, self.last = first, last

    def place(self, value):
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.first + share * (self.last - self.first)

    def marks(self):
        return [10.0**power for power in range(self.low, self.high + 1)]


def style(number, dashes):
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="2" fill="none"{dashed}'


def lines(title, series, x_name):
    """@series: [(name, dashes, [(x, y)])], both axes logarithmic; @x_name(x) is below the axis.
    What has the same name up to a comma has the same colour."""
    points = [point for _, _, some in series for point in some]
    places = sorted({x for x, _ in points})
    x_low, x_high = math.log(places[0]), math.log(places[-1])
    y_axis = LogAxis([y for _, y in points], HEIGHT - BOTTOM, TOP)

    def place_x(x):
        share = (math.log(x) - x_low) / (x_high - x_low) if x_high > x_low else 0.5
        return LEFT + share * (WIDTH - RIGHT - LEFT)

    parts = [text(10, 22, title, font_size=15)]
    for mark in y_axis.marks():
        y = y_axis.place(mark)
        parts += [line(LEFT, y, WIDTH - RIGHT, y),
                  text(LEFT - 6, y + 4, short(mark), text_anchor="end")]  # fmt: skip
    for x in places:
        parts.append(line(place_x(x), TOP, place_x(x), HEIGHT - BOTTOM))
        parts.append(text(place_x(x), HEIGHT - BOTTOM + 18, x_name(x), text_anchor="middle"))
    families = list(dict.fromkeys(name.split(",")[0] for name, _, _ in series))
    for number, (name, dashes, some) in enumerate(series):
        look = style(families.index(name.split(",")[0]), dashes)
        path = " ".join(f"{place_x(x):.1f},{y_axis.place(y):.1f}" for x, y in some)
        y = TOP + 10 + number * 20
        parts += [f'<polyline points="{path}" {look}/>',
                  f'<path d="M{WIDTH - RIGHT + 12} {y} h28" {look}/>',
                  text(WIDTH - RIGHT + 46, y + 4, name)]  # fmt: skip
    return document(HEIGHT, parts)


def bars(title, rows, value_name):
    """@rows: [(name, is_light, value, [marks])] on a logarithmic axis; marks are ticks on a bar."""
    height = TOP + BAR * len(rows) + BOTTOM
    values = [place for _, _, value, marks in rows for place in (value, *marks)]
    axis = LogAxis(values, 170, WIDTH - 90)
    parts = [text(10, 22, title, font_size=15)]
    for mark in axis.marks():
        x = axis.place(mark)
        parts += [line(x, TOP, x, height - BOTTOM),
                  text(x, height - BOTTOM + 18, short(mark), text_anchor="middle")]  # fmt: skip
    for number, (name, is_light, value, marks) in enumerate(rows):
        y = TOP + BAR * number + 3
        end = axis.place(value)
        colour = "#66ccee" if is_light else "#4477aa"
        parts += [text(160, y + 13, name, text_anchor="end"),
                  f'<rect x="170" y="{y}" width="{end - 170:.1f}" height="{BAR - 6}"'
                  f' fill="{colour}"/>',
                  *(line(axis.place(mark), y, axis.place(mark), y + BAR - 6, "#ee6677")
                    for mark in marks),
                  text(axis.place(max([value, *marks])) + 5, y + 13,
                       value_name(value))]  # fmt: skip
    return document(height, parts)
