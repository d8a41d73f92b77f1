// The page of `penstock plan --html`: the text report, with timelines and sweeps drawn as SVG.
#include "tools/penstock/plan/drawing.hpp"
#include "tools/penstock/plan/report.hpp"
#include "tools/penstock/plan/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace penstock::command {

namespace {

constexpr size_t kTimelines = 8;  // drawn for the fastest schemes, beside the dense reference

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ink: #1c2330; --soft: #5b6575; --line: #d5dae2; --paper: #fff;
  --backward: #4e79a7; --encode: #e08214; --exchange: #2f8f5b; --decode: #9b62a7; --forward: #8b97a8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ef; --soft: #9aa5b5; --line: #343d4b; --paper: #12161d;
    --backward: #6f9bcb; --encode: #f0a04b; --exchange: #55b985; --decode: #bd8ac8; --forward: #7b8798; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1080px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; } h3 { font-size: 1rem; margin-bottom: .2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
dt { color: var(--soft); } dd { margin: 0; }
.verdict { font-size: 1.1rem; font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { text-align: right; padding: .15rem .7rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
th { color: var(--soft); font-weight: 500; }
svg { width: 100%; height: auto; font: 11px system-ui, sans-serif; }
svg text { fill: var(--soft); } svg .name { fill: var(--ink); }
.axis { stroke: var(--line); } .cross { stroke: var(--soft); stroke-dasharray: 3 3; }
.lane0 { fill: var(--backward); } .lane1 { fill: var(--encode); } .lane2 { fill: var(--exchange); }
.lane3 { fill: var(--decode); } .lane4 { fill: var(--forward); }
.curve { fill: none; stroke-width: 2; } .loser { fill: none; stroke: var(--line); stroke-width: 1; }
)";

std::string table_of(const Predicted& predicted) {
  std::string rows;
  for (const size_t i : predicted.by_speed()) {
    const Prediction& outcome = predicted.outcomes[i];
    rows += fmt::format("<tr><td>{}</td>", escaped(predicted.name(i)));
    if (outcome.open)
      rows += "<td colspan=\"7\">depends on values</td>";
    else
      rows += fmt::format(
          "<td>{}</td><td>{:.2f} ×</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
          time_text(outcome.step_us), predicted.against_dense(outcome),
          time_text(outcome.exposed_us), time_text(outcome.encode_us),
          time_text(outcome.exchange_us), time_text(outcome.decode_us), bytes_text(outcome.bytes));
    rows += "</tr>\n";
  }
  return "<div class=\"wide\"><table>\n<tr><th>scheme</th><th>step</th><th>against dense</th>"
         "<th>waits</th><th>encodes</th><th>exchanges</th><th>decodes</th><th>sent per rank</th>"
         "</tr>\n" +
         rows + "</table></div>\n";
}

// The schemes whose timelines are drawn: the dense reference and the fastest schemes.
std::vector<size_t> drawn(const Predicted& predicted) {
  std::vector<size_t> chosen{0};
  for (const size_t i : predicted.by_speed())
    if (i != 0 && !predicted.outcomes[i].open && chosen.size() <= kTimelines) chosen.push_back(i);
  return chosen;
}

constexpr double kLeft = 92, kRight = 12, kWidth = 1040, kLane = 22, kAxis = 22;
constexpr double kColumn = 2;   // narrower boxes are drawn together, by columns of this width
constexpr double kLongest = 2;  // times the fastest drawn step; longer timelines are cut off

double end_of(const std::vector<Span>& spans) {
  double end_us = 0;
  for (const Span& span : spans) end_us = std::max(end_us, span.end);
  return end_us;
}

// The narrow boxes of a lane in one column.
struct Column {
  double busy_us = 0;
  uint64_t n_spans = 0;
  const Span* first = nullptr;
};

std::string title_of(const Span& span) {
  return fmt::format("{}: {} to {}", span.name, time_text(span.start), time_text(span.end));
}

// Draws a box for each span, as wide as the span. Spans that are too narrow are drawn together, one
// box per column; its height is the share of the column's time in which the lane is busy. So the
// area of boxes shows the true busy time.
void draw_spans(const std::vector<Span>& spans, const Scale& time, Drawing& drawing) {
  const auto top = [](size_t lane) { return kLane * double(lane) + 2; };
  const auto style = [](size_t lane) { return fmt::format("lane{}", lane); };
  std::map<std::pair<size_t, int64_t>, Column> columns;  // by lane and place
  for (const Span& span : spans) {
    if (span.start >= time.last) continue;
    const size_t lane = size_t(span.lane);
    const double x = time(span.start), width = time(std::min(span.end, time.last)) - x;
    if (width >= kColumn) {
      drawing.box(style(lane), x, top(lane), width - 0.5, kLane - 4, title_of(span));
      continue;
    }
    Column& column = columns[{lane, static_cast<int64_t>(std::floor(x / kColumn))}];
    column.busy_us += span.end - span.start;
    if (column.n_spans++ == 0) column.first = &span;
  }
  const double column_us = (time.last - time.first) * kColumn / (time.to_place - time.from_place);
  for (const auto& [at, column] : columns) {
    const auto [lane, place] = at;
    const double share = std::min(1.0, column.busy_us / column_us);
    const double height = std::max(1.0, share * (kLane - 4));
    const std::string title = column.n_spans == 1
                                  ? title_of(*column.first)
                                  : fmt::format("{} and {} more: {} together", column.first->name,
                                                column.n_spans - 1, time_text(column.busy_us));
    drawing.box(style(lane), kColumn * double(place), top(lane) + kLane - 4 - height, kColumn,
                height, title);
  }
}

std::string timeline_of(const Predicted& predicted, size_t scheme, double end_us) {
  const double height = kLane * kLanes + kAxis;
  const std::vector<Span> spans = spans_of(predicted.outcomes[scheme], *predicted.profile);
  const bool is_cut = end_of(spans) > end_us;
  const Scale time{0, end_us, kLeft, kWidth - kRight, false};
  Drawing drawing(kWidth, height);
  for (const double tick : time.ticks(8)) {
    drawing.line("axis", time(tick), 0, time(tick), kLane * kLanes);
    drawing.text("", time(tick), height - 6, "middle", time_text(tick));
  }
  for (size_t lane = 0; lane < kLanes; ++lane)
    drawing.text("name", kLeft - 8, kLane * (double(lane) + 0.7), "end", kLaneNames[lane]);
  draw_spans(spans, time, drawing);
  if (is_cut) drawing.line("cross", kWidth - kRight, 0, kWidth - kRight, kLane * kLanes);
  return fmt::format("<h3>{}: {} a step{}</h3>\n{}", escaped(predicted.name(scheme)),
                     time_text(predicted.outcomes[scheme].step_us),
                     is_cut ? fmt::format(", of which {} are drawn", time_text(end_us)) : "",
                     drawing.svg());
}

std::string timelines_of(const Predicted& predicted) {
  std::string text =
      "<h2>Timelines</h2>\n<p>From the start of backward: dense, and the fastest schemes. All "
      "timelines have one scale; a timeline that is more than twice as long as the fastest is cut "
      "off. Spans that are too short to be drawn alone share a low box; its height is the share of "
      "its width that is busy. Point at a box for its bucket and times.</p>\n";
  const std::vector<size_t> chosen = drawn(predicted);
  double fastest_us = HUGE_VAL, longest_us = 0;
  for (const size_t scheme : chosen) {
    const double end_us = end_of(spans_of(predicted.outcomes[scheme], *predicted.profile));
    if (end_us > 0) fastest_us = std::min(fastest_us, end_us);
    longest_us = std::max(longest_us, end_us);
  }
  // Draw an axis even if no scheme takes any time.
  const double end_us = longest_us > 0 ? std::min(longest_us, kLongest * fastest_us) : 1;
  for (const size_t scheme : chosen) text += timeline_of(predicted, scheme, end_us);
  return text;
}

// ---- Sweeps ----

std::string colour(size_t number) {
  // Hues a golden angle apart, in the order in which schemes win.
  return fmt::format("hsl({:.0f} 62% 48%)", std::fmod(210 + 137.5 * double(number), 360.0));
}

// The schemes that are best somewhere, in the order of their places, and the dense reference.
std::vector<size_t> winners_of(const Sweep& sweep) {
  std::vector<size_t> winners{sweep.points.front().best};
  const auto add = [&](size_t scheme) {
    if (std::find(winners.begin(), winners.end(), scheme) == winners.end())
      winners.push_back(scheme);
  };
  for (const Crossover& crossover : sweep.crossovers) add(crossover.to);
  add(0);
  return winners;
}

void draw_curves(const Predicted& predicted, const Sweep& sweep, const std::vector<size_t>& winners,
                 const Scale& x, const Scale& y, Drawing& drawing) {
  const auto curve = [&](size_t scheme) {
    std::vector<std::pair<double, double>> points;
    for (const SweepPoint& point : sweep.points)
      points.emplace_back(x(point.at), y(point.step_us[scheme]));
    return points;
  };
  for (size_t i = 0; i < predicted.outcomes.size(); ++i)
    if (!predicted.outcomes[i].open) drawing.curve("loser", "", curve(i), predicted.name(i));
  for (size_t i = 0; i < winners.size(); ++i)
    drawing.curve("curve", colour(i), curve(winners[i]), predicted.name(winners[i]));
}

// Draws a strip above the curves that shows the best scheme at each place.
void draw_strip(const Predicted& predicted, const Sweep& sweep, const std::vector<size_t>& winners,
                const Scale& x, double bottom, Drawing& drawing) {
  double from = sweep.points.front().at;
  size_t best = sweep.points.front().best;
  const auto close = [&](double to) {
    const auto number = std::find(winners.begin(), winners.end(), best) - winners.begin();
    const double left = x(from), width = std::max(1.0, x(to) - left);
    drawing.filled_box(colour(size_t(number)), left, 18, width, 10, predicted.name(best));
    if (width > 70) drawing.text("name", left + width / 2, 13, "middle", predicted.name(best));
  };
  for (const Crossover& crossover : sweep.crossovers) {
    close(crossover.at);
    drawing.line("cross", x(crossover.at), 18, x(crossover.at), bottom);
    from = crossover.at;
    best = crossover.to;
  }
  close(sweep.points.back().at);
}

std::string sweep_of(const Predicted& predicted, const Sweep& sweep) {
  constexpr double kWidth = 1040, kHeight = 420, kLeft = 62, kTop = 34, kBottom = 380;
  constexpr double kRight = kWidth - 170;
  double least = 1e300, most = 0;
  for (const SweepPoint& point : sweep.points)
    for (size_t i = 0; i < point.step_us.size(); ++i)
      if (!predicted.outcomes[i].open) {
        least = std::min(least, point.step_us[i]);
        most = std::max(most, point.step_us[i]);
      }
  const Scale x{sweep.points.front().at, sweep.points.back().at, kLeft, kRight, true};
  const Scale y{least / 1.1, most * 1.1, kBottom, kTop, true};
  Drawing drawing(kWidth, kHeight);
  for (const double tick : y.ticks(6)) {
    drawing.line("axis", kLeft, y(tick), kRight, y(tick));
    drawing.text("", kLeft - 6, y(tick) + 4, "end", time_text(tick));
  }
  for (const SweepPoint& point : sweep.points)
    drawing.text("", x(point.at), kBottom + 18, "middle",
                 sweep.range.what == SweptFor::ranks ? fmt::format("{:.0f}", point.at)
                                                     : short_rate(point.at));
  const std::vector<size_t> winners = winners_of(sweep);
  draw_curves(predicted, sweep, winners, x, y, drawing);
  draw_strip(predicted, sweep, winners, x, kBottom, drawing);
  for (size_t i = 0; i < winners.size(); ++i) {
    const double at = kTop + 14 + 17 * double(i);
    drawing.filled_box(colour(i), kRight + 14, at - 9, 12, 10, predicted.name(winners[i]));
    drawing.text("name", kRight + 32, at, "start", predicted.name(winners[i]));
  }
  return fmt::format(
      "<h2>Over {}</h2>\n<p class=\"verdict\">Best {}: {}.</p>\n{}<p>Time of a step; the names "
      "above the curves are the fastest schemes. Grey: schemes that are fastest nowhere.</p>\n",
      sweep.range.name(), kPerStep, escaped(best_over(predicted, sweep)), drawing.svg());
}

}  // namespace

std::string page_of(const Predicted& predicted) {
  std::string facts;
  for (const auto& [name, sentence] : premises(predicted))
    facts += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escaped(name), escaped(sentence));
  std::string sweeps;
  for (const Sweep& sweep : predicted.sweeps) sweeps += sweep_of(predicted, sweep);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<title>penstock plan: {0}</title>\n<style>{1}</style>\n</head>\n<body>\n"
      "<h1>A step of {0}, predicted</h1>\n<dl>\n{2}</dl>\n<p class=\"verdict\">{3}</p>\n{4}{5}{6}"
      "</body>\n</html>\n",
      escaped(predicted.profile->name), kStyle, facts, escaped(verdict(predicted)),
      table_of(predicted), sweeps, timelines_of(predicted));
}

}  // namespace penstock::command
