// GET /metrics (Prometheus text) and /v1/live (what the page shows of the machine).
#include "server/endpoints.h"
#include "server/json_text.h"

namespace deltafin {
namespace {

const char* ToString(Phase phase) {
  switch (phase) {
    case Phase::kOpen:
    case Phase::kLoad:
      return "load";
    case Phase::kPrefill:
      return "prefill";
    case Phase::kDecode:
      return "decode";
    case Phase::kIdle:
      break;
  }
  return "idle";
}

// A drive that is known by a folder only: without the way there.
std::string ShortName(const std::string& drive) { return drive.substr(drive.rfind('/') + 1); }

class MetricsText {
 public:
  template <typename T>
  void Add(const char* name, const char* type, const char* help, T value) {
    out += Cat("# HELP deltafin_", name, " ", help, "\n# TYPE deltafin_", name, " ", type, "\ndeltafin_", name, " ",
               value, "\n");
  }
  void Head(const char* name, const char* type, const char* help) {
    out += Cat("# HELP deltafin_", name, " ", help, "\n# TYPE deltafin_", name, " ", type, "\n");
  }
  template <typename T>
  void Drive(const char* name, const std::string& drive, T value) {
    out += Cat("deltafin_", name, "{drive=", JsonString(ShortName(drive)), "} ", value, "\n");
  }
  std::string out;
};

void AddRequests(const ServiceCounters& c, MetricsText* text) {
  text->Add("requests_live", "gauge", "Requests that are being answered.", c.live);
  text->Add("requests_queued", "gauge", "Requests that wait.", c.queued);
  text->Add("requests_accepted_total", "counter", "Requests that were accepted.", c.accepted);
  text->Add("requests_refused_total", "counter", "Requests that the full queue refused.", c.refused);
  text->Add("requests_completed_total", "counter", "Requests that were answered.", c.completed);
  text->Add("requests_cancelled_total", "counter", "Requests whose client went away.", c.cancelled);
  text->Add("requests_failed_total", "counter", "Requests that a fault ended.", c.failed);
  text->Add("prompt_tokens_total", "counter", "Prompt tokens of ended requests.", c.prompt_tokens);
  text->Add("prompt_tokens_read_total", "counter", "Of them, read by the model; the others were kept.",
            c.prompt_tokens_read);
  text->Add("new_tokens_total", "counter", "Tokens that were generated.", c.new_tokens);
  text->Head("first_token_seconds", "summary", "From a request's start to its first token.");
  text->out += Cat("deltafin_first_token_seconds_sum ", c.seconds_first_token, "\ndeltafin_first_token_seconds_count ",
                   c.first_tokens, "\n");
  text->Add("steps_total", "counter", "Passes through the network.", c.steps);
  text->Add("drafted_tokens_total", "counter", "Drafted tokens that were checked.", c.drafts_tried);
  text->Add("drafted_tokens_right_total", "counter", "Of them, those that were the model's own.", c.drafts_right);
  text->Add(
      "drafters_silent_total", "counter",
      "Answers in which a drafter that looks at the model had not seen the conversation's beginning, or had to stop.",
      c.drafters_silent);
  text->Add("step_seconds_total", "counter", "Time spent in them.", c.seconds_busy);
}

void AddMachine(const EngineMonitor::Snapshot& s, MetricsText* text) {
  text->Add("expert_cache_hits_total", "counter", "Experts that were in memory.", s.cache.hits);
  text->Add("expert_cache_misses_total", "counter", "Experts that were read.", s.cache.misses);
  text->Add("expert_cache_slots", "gauge", "Experts that fit into memory.", s.slots);
  text->Add("expert_wait_seconds_total", "counter", "Time that steps waited for experts.", s.cache.wait_seconds);
  text->Add("dense_wait_seconds_total", "counter", "Time that steps waited for other weights.", s.dense_wait_seconds);
  text->Add("read_errors_total", "counter", "Reads that failed.", s.io.errors);
  text->Head("drive_bytes_total", "counter", "Bytes read from a drive, alignment included.");
  for (size_t i = 0; i < s.drive_counters.size(); ++i)
    text->Drive("drive_bytes_total", s.drives[i].name, s.drive_counters[i].device_bytes);
  text->Head("drive_busy_seconds_total", "counter", "Time in which a drive had reads in flight.");
  for (size_t i = 0; i < s.drive_counters.size(); ++i)
    text->Drive("drive_busy_seconds_total", s.drives[i].name, s.drive_counters[i].busy_seconds);
}

}  // namespace

HttpResponse Metrics(const ServerContext& context, const ApiRequest&) {
  MetricsText text;
  AddRequests(context.service.counters(), &text);
  AddMachine(context.monitor.Sample(), &text);
  return {200, "text/plain; version=0.0.4", text.out};
}

HttpResponse Live(const ServerContext& context, const ApiRequest&) {
  const ServiceCounters c = context.service.counters();
  const EngineMonitor::Snapshot s = context.monitor.Sample();
  std::string drives;
  for (size_t i = 0; i < s.drive_counters.size(); ++i)
    drives += Cat(i == 0 ? "" : ", ", "{\"name\": ", JsonString(ShortName(s.drives[i].name)),
                  ", \"bytes\": ", s.drive_counters[i].device_bytes,
                  ", \"busy_seconds\": ", PythonFloatText(s.drive_counters[i].busy_seconds), "}");
  const auto seconds = [](double value) { return PythonFloatText(value); };
  return {
      200, "application/json",
      Cat("{\"model\": ", JsonString(context.model), ", \"version\": ", JsonString(context.version), ", \"engine\": ",
          JsonString(context.service.engine().Describe()), ", \"context\": ", context.service.engine().plan().context,
          ", \"phase\": ", JsonString(ToString(s.phase)), ", \"live\": ", c.live, ", \"queued\": ", c.queued,
          ", \"step_rows\": ", s.step_rows, ", \"layer\": ", s.layer, ", \"layers\": ", s.layers,
          ", \"new_tokens\": ", c.new_tokens, ", \"first_token_seconds\": ", seconds(c.last_seconds_first_token),
          ", \"step_seconds\": ", seconds(c.seconds_busy), ", \"expert_wait_seconds\": ", seconds(s.cache.wait_seconds),
          ", \"dense_wait_seconds\": ", seconds(s.dense_wait_seconds), ", \"cache_hits\": ", s.cache.hits,
          ", \"cache_misses\": ", s.cache.misses, ", \"slots\": ", s.slots, ", \"resident\": ", s.resident,
          ", \"drives\": [", drives, "]}")};
}

}  // namespace deltafin
