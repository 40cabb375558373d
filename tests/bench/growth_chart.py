"""Draws ratios by count as SVG: a panel a dimension with a logarithmic axis, a line a figure, the goal dashed; for light and dark pages."""

import math

WIDTH, HEIGHT, GAP, LEFT, TOP = 250, 220, 44, 44, 56
COLOURS = ("#3b82f6", "#e11d48", "#0d9488", "#d97706", "#8b5cf6", "#64748b")
STYLE = "text{font:12px system-ui,sans-serif;fill:#7d8590}.axis{stroke:#7d8590;fill:none}.goal{stroke:#7d8590;stroke-dasharray:5 4}"


def chart(points, *, goal):
    """`points` have `what`, `by`, `count` and `ratio`."""
    panels, figures = ({point[key]: None for point in points} for key in ("by", "what"))
    colours = dict(zip(figures, COLOURS, strict=False))
    highest = max(goal, *(point["ratio"] for point in points)) * 1.08
    parts = [_text(LEFT, 18, "Ratio of the median to that of the small case")]
    for number, what in enumerate(figures):
        x = LEFT + number * 130
        parts.append(f'<path d="M{x} 34h18" stroke="{colours[what]}" stroke-width="3"/>' + _text(x + 24, 38, what))
    for number, by in enumerate(panels):
        own = [point for point in points if point["by"] == by]
        parts.append(_panel(LEFT + number * (WIDTH + GAP), by, own, colours, goal, highest))
    width, height = LEFT + len(panels) * (WIDTH + GAP), TOP + HEIGHT + 50
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="Growth">'
    return f"{opening}\n<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"


def _panel(left, by, points, colours, goal, highest):
    counts = sorted({point["count"] for point in points})
    low, high = (math.log10(counts[place]) for place in (0, -1))

    def x(count):
        return round(left + 8 + (math.log10(count) - low) / ((high - low) or 1) * (WIDTH - 16), 1)

    def y(ratio):
        return round(TOP + HEIGHT - ratio / highest * HEIGHT, 1)

    parts = [f'<path class="axis" d="M{left} {TOP}V{TOP + HEIGHT}h{WIDTH}"/>']
    parts.append(f'<path class="goal" d="M{left} {y(goal)}h{WIDTH}"/>' + _text(left + 8, y(goal) - 6, f"goal {goal:g}"))
    step = next(step for step in (0.5, 1, 2, 5, 10, 20, 50, 100, 1000) if highest / step < 8)
    for tick in range(int(highest / step) + 1):
        parts.append(_text(left - 6, y(tick * step) + 4, f"{tick * step:g}", "end"))
    for count in counts:
        parts.append(_text(x(count), TOP + HEIGHT + 18, _short(count), "middle"))
    parts.append(_text(left + WIDTH / 2, TOP + HEIGHT + 38, by, "middle"))
    for what, colour in colours.items():
        own = sorted((point["count"], point["ratio"]) for point in points if point["what"] == what)
        line = " ".join(f"{x(count)},{y(ratio)}" for count, ratio in own)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x(count)}" cy="{y(ratio)}" r="3" fill="{colour}"/>' for count, ratio in own]
    return "\n".join(parts)


def _short(count):
    return f"{count // 1_000_000} M" if count >= 1_000_000 else f"{count // 1000} k" if count >= 1000 else str(count)


def _text(x, y, text, anchor="start"):
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>'
