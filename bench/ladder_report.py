"""Tables and the SVG plot of bench/drive_ladder. Pure functions of the results."""

from statistics import median
from xml.sax.saxutils import escape

from ladder_verdicts import cells as group

# Series of the plot: colour and dash.
STYLES = {
    "striped, engine": ("#0b6e4f", ""),
    "striped, engine, read-ahead": ("#0b6e4f", "2 4"),
    "striped, scheduler": ("#2a9d8f", "7 4"),
    "striped, scheduler, read-ahead": ("#8ab17d", "2 4"),
    "mirrored whole records": ("#c1443c", ""),
    "mirrored, read-ahead": ("#e9a03b", "2 4"),
}
PUBLISHED = [85, 82, 77, 72]  # of the best published engine, mirrored, 1 to 4 drives


def spread(values):
    return f"{median(values):.1f}" if len(values) == 1 else f"{median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def reads_table(rows):
    lines = ["scheduler: layers of 16 records, percent of the summed limits, median (range) of the seeds",
             f"{'sum MB/s':>8}  {'drives':>6}  {'placement':<9} {'ahead':<5}  {'GB/s':>6}  {'% of limit':>20}  {'bound %':>7}"]
    for (total, drives, placement, ahead), runs in group(rows, "sum", "drives", "placement", "ahead").items():
        lines.append(f"{total / 1e6:8.0f}  {drives:6d}  {placement:<9} {'yes' if ahead else 'no':<5}  "
                     f"{median(r['bytes_per_second'] for r in runs) / 1e9:6.3f}  "
                     f"{spread([r['percent_of_limit'] for r in runs]):>20}  "
                     f"{median(r['bound_percent'] for r in runs):7.1f}")
    return "\n".join(lines)


def with_ahead(rows):
    """Files of before the engine read ahead do not say that it did not."""
    return [{"ahead": False} | row for row in rows]


def engine_table(rows):
    lines = ["engine: decode of a synthetic model, percent of the summed limits, median (range) of the seeds",
             f"{'sum MB/s':>8}  {'drives':>6}  {'ahead':<5}  {'tokens/s':>8}  {'GB/s':>6}  {'% while reading':>20}  {'% of wall time':>20}  "
             f"{'bound %':>7}  {'read/needed':>11}"]
    for (total, drives, ahead), runs in group(with_ahead(rows), "sum", "drives", "ahead").items():
        lines.append(f"{total / 1e6:8.0f}  {drives:6d}  {'yes' if ahead else 'no':<5}  "
                     f"{median(r['tokens_per_second'] for r in runs):8.3f}  "
                     f"{median(r['bytes_per_second'] for r in runs) / 1e9:6.3f}  "
                     f"{spread([r['percent_of_limit'] for r in runs]):>20}  "
                     f"{spread([r['percent_of_limit_wall'] for r in runs]):>20}  "
                     f"{median(r['bound_percent'] for r in runs):7.1f}  "
                     f"{max(r.get('read_over_needed', r['device_over_needed']) for r in runs):11.4f}")
    return "\n".join(lines)


def prompt_table(rows):
    lines = ["prompt: seconds to the first token of a prompt, beside its bytes over the summed limits and its arithmetic",
             f"{'sum MB/s':>8}  {'drives':>6}  {'first token s':>13}  {'bytes / limits s':>16}  {'arithmetic s':>12}  {'read/needed':>11}"]
    for row in rows:
        lines.append(f"{row['sum'] / 1e6:8.0f}  {row['drives']:6d}  {row['seconds']:13.2f}  {row['seconds_reading_bound']:16.2f}  "
                     f"{row['seconds_arithmetic']:12.2f}  {row['device_over_needed']:11.4f}")
    return "\n".join(lines)


def plain_table(plain):
    lines = [f"one disk, record reads and the probe in turns: {plain['name']}"]
    for i, turn in enumerate(plain["rounds"]):
        lines.append(f"  turn {i + 1}: probe {turn['probe_bytes_per_second'] / 1e9:.3f} GB/s, "
                     f"records {turn['reads_bytes_per_second'] / 1e9:.3f} GB/s")
    lines.append(f"  in all {plain['percent_of_probe']:.1f} % of the probe, median of the turns {plain['median_percent']:.1f} %")
    return "\n".join(lines)


def faults_table(rows):
    lines = ["a drive that fails in the middle of a run"]
    lines += [f"  {'as expected' if row['ok'] else 'FAILED     '}  {row['case']}: exit code {row['exit_code']}, {row['seconds']:.1f} s, "
              f"{row['tokens']} tokens{', the same ids' if row['same_ids'] else ''}" for row in rows]
    return "\n".join(lines)


def series_of(results, total):
    """{name: {drives: percent}} for one sum of limits."""
    series = {}
    names = {("striped", False): "striped, scheduler", ("striped", True): "striped, scheduler, read-ahead",
             ("mirrored", False): "mirrored whole records", ("mirrored", True): "mirrored, read-ahead"}
    for (drives, placement, ahead), runs in group([r for r in results.get("reads", []) if r["sum"] == total],
                                                  "drives", "placement", "ahead").items():
        series.setdefault(names[placement, ahead], {})[drives] = median(r["percent_of_limit"] for r in runs)
    for (drives, ahead), runs in group(with_ahead(r for r in results.get("engine", []) if r["sum"] == total),
                                       "drives", "ahead").items():
        name = "striped, engine, read-ahead" if ahead else "striped, engine"
        series.setdefault(name, {})[drives] = median(r["percent_of_limit"] for r in runs)
    return {name: series[name] for name in STYLES if name in series}


class Panel:
    """One chart: drives across, percent of the summed limits up."""

    WIDTH, HEIGHT, LOW, HIGH = 380, 300, 65, 105

    def __init__(self, left, top):
        self.left, self.top = left, top

    def x(self, drives):
        return self.left + 40 + (drives - 1) * (self.WIDTH - 80) / 3

    def y(self, percent):
        return self.top + (self.HIGH - percent) / (self.HIGH - self.LOW) * self.HEIGHT

    def frame(self, title):
        parts = [f'<text x="{self.left}" y="{self.top - 14}" font-weight="bold">{escape(title)}</text>']
        for percent in range(self.LOW, self.HIGH + 1, 5):
            strong = percent in (95, 100)
            parts.append(f'<line x1="{self.left}" x2="{self.left + self.WIDTH}" y1="{self.y(percent):.1f}" '
                         f'y2="{self.y(percent):.1f}" stroke="{"#777" if strong else "#ddd"}"/>')
            parts.append(f'<text x="{self.left - 8}" y="{self.y(percent) + 4:.1f}" text-anchor="end" '
                         f'fill="#555">{percent}</text>')
        for drives in range(1, 5):
            parts.append(f'<text x="{self.x(drives):.1f}" y="{self.top + self.HEIGHT + 20}" text-anchor="middle">{drives} '
                         f'drive{"s" if drives > 1 else ""}</text>')
        return parts

    def line(self, points, colour, dash):
        shown = [(self.x(d), self.y(max(self.LOW, min(self.HIGH, p)))) for d, p in sorted(points.items())]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in shown)
        parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5" stroke-dasharray="{dash}"/>']
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in shown]
        return parts


def svg(results):
    sums = sorted({row["sum"] for name in ("reads", "engine") for row in results.get(name, [])})
    width = 60 + len(sums) * (Panel.WIDTH + 70)
    legend_top = 90 + Panel.HEIGHT + 50
    parts = [f'<text x="30" y="30" font-size="17">Expert reads: percent of the drives\' summed limits '
             f'({escape(results["method"])})</text>']
    names = []
    for i, total in enumerate(sums):
        panel = Panel(60 + i * (Panel.WIDTH + 70), 80)
        parts += panel.frame(f"{total / 1e6:.0f} MB/s in all, 13.6 : 7.1 : 7.1 : 5.4")
        parts += panel.line(dict(zip(range(1, 5), PUBLISHED)), "#aaa", "1 5")
        for name, points in series_of(results, total).items():
            parts += panel.line(points, *STYLES[name])
            names += [name] if name not in names else []
    rows = [(name, *STYLES[name]) for name in STYLES if name in names]
    rows.append(("best published engine (mirrored, real drives)", "#aaa", "1 5"))
    for i, (name, colour, dash) in enumerate(rows):
        y = legend_top + i * 22
        parts.append(f'<line x1="60" x2="110" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2.5" '
                     f'stroke-dasharray="{dash}"/><text x="120" y="{y + 5}">{escape(name)}</text>')
    height = legend_top + len(rows) * 22 + 10
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="white"/>'
            + "\n".join(parts) + "</svg>\n")
