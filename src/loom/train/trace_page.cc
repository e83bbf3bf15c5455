// JSON, tables, and the frame that the script draws into.
#include "train/trace_page.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "pages/page.h"
#include "train/throughput.h"

namespace loom::train {
namespace {

using format::Json;

constexpr double kMiB = 1 << 20;

/// What readers of a page call a kind of instruction, and its colour in page.css.
struct Phase {
  const char* words;
  int colour;
};

Phase phase_of(program::Op op) {
  using program::Op;
  switch (op) {
    case Op::batch: return {"load the batch", 5};
    case Op::gather: return {"gather parameters", 1};
    case Op::forward: return {"forward", 2};
    case Op::recompute: return {"recompute activations", 4};
    case Op::loss: return {"head and loss", 6};
    case Op::logits:
    case Op::evaluate: return {"head, evaluated", 6};
    case Op::backward: return {"backward", 0};
    case Op::reduce_scatter: return {"reduce gradients to shards", 3};
    case Op::accumulate: return {"add gradients", 7};
    case Op::all_reduce: return {"all-reduce gradients", 3};
    case Op::tie: return {"add gradients of a shared matrix", 3};
    case Op::send: return {"send activations", 5};
    case Op::receive: return {"receive activations", 5};
    case Op::send_back: return {"send derivatives", 5};
    case Op::receive_back: return {"receive derivatives", 5};
    case Op::tensor_gather: return {"gather among tensor ranks", 8};
    case Op::tensor_all_reduce: return {"all-reduce among tensor ranks", 8};
    case Op::tensor_reduce_scatter: return {"reduce-scatter among tensor ranks", 8};
    case Op::tensor_gradients: return {"add gradients among tensor ranks", 8};
    case Op::squares: return {"squares of gradients", 7};
    case Op::norm: return {"gradient norm", 7};
    case Op::mean_loss: return {"mean loss", 7};
    case Op::step: return {"optimizer", 7};
    case Op::offload: return {"offload activations", 5};
    case Op::load: return {"load activations", 5};
  }
  return {"", 7};
}

/// To a tenth of a microsecond, which is more than clocks tell.
Json times_json(std::span<const program::Interval> intervals) {
  const auto tenth = [](double us) { return std::round(us * 10) / 10; };
  Json times = Json::array();
  for (const program::Interval& one : intervals)
    times.push_back(Json::array({tenth(one.begin_us), tenth(one.end_us)}));
  return times;
}

struct Speed {
  double flops = 0, utilization = 0;
};

Speed speed_of(const RankTrace& rank, const TraceContext& context) {
  const double seconds = rank.totals.step_us / 1e6;
  return {flops_by_formula(context.job, context.parameters, seconds),
          utilization(context.job, seconds, rank.totals.peak_flops)};
}

Json sums_json(const RankTrace& rank, const TraceContext& context) {
  const RankTotals& t = rank.totals;
  const Speed speed = speed_of(rank, context);
  Json sums = {{"rank", rank.rank},
               {"data", rank.at.data},
               {"stage", rank.at.stage},
               {"tensor", rank.at.tensor},
               {"begin_us", t.begin_us},
               {"clock_error_us", t.clock_error_us},
               {"step_us", t.step_us},
               {"compute_us", t.compute_us},
               {"exposed_us", t.exposed_us},
               {"bubble", t.bubble},
               {"formula_flops", speed.flops},
               {"peak_flops", t.peak_flops},
               {"mfu", speed.utilization},
               {"scratch_bytes", t.scratch_bytes},
               {"process_bytes", t.process_bytes}};
  const program::MemoryPlan& memory = context.memory[static_cast<size_t>(rank.at.stage)];
  Json planned;
  for (int category = 0; category < program::kCategories; ++category)
    planned[program::category_name(static_cast<program::Category>(category))] = memory.peak[category];
  planned["arena"] = memory.bytes;
  sums["planned_bytes"] = planned;
  return sums;
}

std::string where(const RankTrace& rank) {
  return fmt::format("d{}p{}t{}", rank.at.data, rank.at.stage, rank.at.tensor);
}

std::string speed_table(const Trace& trace, const TraceContext& context) {
  std::string text =
      "<table><tr><th>rank</th><th>place</th><th>computing, ms</th><th>predicted</th><th>waiting, "
      "ms</th><th>predicted</th><th>bubble, "
      "%</th><th>TFLOP/s, formula</th><th>MFU, %</th><th>clock, &plusmn; us</th></tr>\n";
  for (const RankTrace& rank : trace.ranks) {
    const RankTotals& t = rank.totals;
    const Speed speed = speed_of(rank, context);
    const program::Forecast& forecast = context.forecast.stages[static_cast<size_t>(rank.at.stage)];
    text += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.1f}</"
        "td><td>{:.5f}</td>"
        "<td>{}</td><td>{}</td></tr>\n",
        rank.rank, where(rank), t.compute_us / 1e3, forecast.compute_us / 1e3, t.exposed_us / 1e3,
        forecast.exposed_us / 1e3, t.bubble * 100, speed.flops / 1e12,
        t.peak_flops > 0 ? fmt::format("{:.1f}", speed.utilization * 100) : "",
        t.clock_error_us < 0 ? "" : fmt::format("{:.0f}", t.clock_error_us));
  }
  return text +
         fmt::format(
             "</table><p>Formula: {:.3g} &middot; samples/s &middot; parameters &middot; sequence length "
             "/ ranks. MFU: "
             "the model's products over the peak of {} products that each rank measured before the first "
             "step.</p>\n",
             formula_factor(context.job), program::precision_name(context.job.precision));
}

std::string memory_table(const Trace& trace, const TraceContext& context) {
  std::string text = "<table><tr><th>MiB</th>";
  for (int category = 0; category < program::kCategories; ++category)
    text += fmt::format("<th>{}</th>", program::category_name(static_cast<program::Category>(category)));
  text += "<th>arena</th><th>scratch, measured</th><th>process, measured</th></tr>\n";
  for (const RankTrace& rank : trace.ranks) {
    const program::MemoryPlan& plan = context.memory[static_cast<size_t>(rank.at.stage)];
    text += fmt::format("<tr><td>rank {}</td>", rank.rank);
    for (const int64_t bytes : plan.peak)
      text += fmt::format("<td>{:.2f}</td>", static_cast<double>(bytes) / kMiB);
    const double process = rank.totals.process_bytes;
    text += fmt::format("<td>{:.2f}</td><td>{:.2f}</td><td>{}</td></tr>\n",
                        static_cast<double>(plan.bytes) / kMiB, rank.totals.scratch_bytes / kMiB,
                        process > 0 ? fmt::format("{:.2f}", process / kMiB) : "");
  }
  return text +
         "</table><p>Categories are of the moment when most is planned to be in use. What can be measured of "
         "a process is its "
         "sum.</p>\n";
}

/// Kinds of instructions that the programs have.
std::set<int> drawn_ops(const TraceContext& context) {
  std::set<int> ops;
  for (const program::Program& program : context.programs)
    for (const program::Instruction& i : program.instructions) ops.insert(static_cast<int>(i.op));
  return ops;
}

}  // namespace

Json trace_json(const Trace& trace, const TraceContext& context) {
  Json json = {{"step", trace.step + 1}};
  for (int op = 0; op < program::kOps; ++op) {
    const Phase phase = phase_of(static_cast<program::Op>(op));
    json["ops"].push_back(Json::array({phase.words, phase.colour}));
  }
  for (size_t stage = 0; stage < context.programs.size(); ++stage) {
    Json instructions = Json::array();
    for (const program::Instruction& i : context.programs[stage].instructions)
      instructions.push_back(Json::array({static_cast<int>(i.op), i.lane, i.unit, i.microbatch,
                                          context.programs[stage].shared ? i.first : -1}));
    json["stages"].push_back({{"instructions", std::move(instructions)},
                              {"predicted", times_json(context.forecast.stages[stage].intervals)}});
  }
  json["predicted_step_us"] = context.forecast.step_us;
  json["predicted_bubble"] = context.forecast.bubble;
  for (const RankTrace& rank : trace.ranks) {
    Json one = sums_json(rank, context);
    one["measured"] = times_json(rank.intervals);
    json["ranks"].push_back(std::move(one));
  }
  return json;
}

std::string trace_line(const Trace& trace, const TraceContext& context) {
  Json ranks = Json::array();
  for (const RankTrace& rank : trace.ranks) ranks.push_back(sums_json(rank, context));
  return Json({{"trace", {{"step", trace.step + 1}, {"ranks", std::move(ranks)}}}}).dump();
}

std::string trace_html(const Trace& trace, const TraceContext& context) {
  double longest = 0, bubble = 0;
  size_t drawn = 0;
  for (const RankTrace& rank : trace.ranks) {
    longest = std::max(longest, rank.totals.step_us);
    bubble += rank.totals.bubble / static_cast<double>(trace.ranks.size());
    drawn += !rank.intervals.empty();
  }
  const std::string bubbles =
      context.job.pipeline_degree == 1
          ? ""
          : fmt::format("; bubble {:.1f} %, predicted {:.1f}", bubble * 100, context.forecast.bubble * 100);
  std::string text = fmt::format(
      "<h2>Step {} of all ranks: {:.1f} ms, predicted {:.1f}{}</h2>\n<p>{} of {} ranks are drawn; times are "
      "on "
      "rank 0's clock. "
      "The wheel zooms, dragging moves, a click on a rank's number shows its lanes, and numbers in boxes are "
      "microbatches. "
      "Communication is drawn until the rank has waited for it.</p>\n",
      trace.step + 1, longest / 1e3, context.forecast.step_us / 1e3, bubbles, drawn, trace.ranks.size());
  text +=
      "<p><button id=\"all\">all lanes</button> <button id=\"none\">one row a rank</button> <button "
      "id=\"whole\">whole "
      "step</button> <span id=\"hover\"></span></p>\n"
      "<div class=\"panel\">measured<canvas id=\"measured\"></canvas></div>\n"
      "<div class=\"panel\">predicted<canvas id=\"predicted\"></canvas></div>\n<p class=\"legend\">";
  for (const int op : drawn_ops(context)) {
    const Phase phase = phase_of(static_cast<program::Op>(op));
    text += fmt::format("<span><i style=\"background:var(--c{})\"></i>{}</span>", phase.colour, phase.words);
  }
  text += "</p>\n<script type=\"application/json\" id=\"trace\">" +
          pages::in_script(trace_json(trace, context)) + "</script>\n";
  return text + "<h2>Ranks</h2>\n" + speed_table(trace, context) + "<h2>Memory of each rank</h2>\n" +
         memory_table(trace, context);
}

}  // namespace loom::train
