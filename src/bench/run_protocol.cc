#include "bench/run_protocol.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/clock.h"
#include "base/units.h"

namespace deltafin {
namespace {

std::string Describe(const BenchRun& run) {
  return Cat("arm ", run.arm, ", ", CaseName(run.prompt, run.new_tokens),
             run.round == 0 ? std::string(", warm-up") : Cat(", round ", run.round));
}

class Protocol {
 public:
  Protocol(const ProtocolOptions& options, BenchResult* result)
      : options_(options), result_(*result), check_(options.arms, options.expected) {}

  Status Run() {
    for (int i = 0; i < options_.warm_ups; ++i)
      for (const BenchArm& arm : options_.arms) DFIN_TRY_VOID(RunOnce(arm, Shortest(), Shortest().lengths.front(), 0));
    for (int round = 0; round < options_.rounds; ++round)
      for (const BenchPrompt& prompt : options_.prompts)
        for (const int64_t length : prompt.lengths)
          for (const size_t arm : ArmOrder(options_.arms.size(), round)) {
            DFIN_TRY_VOID(RunOnce(options_.arms[arm], prompt, length, round + 1));
            if (result_.state == BenchState::kVoided) return {};
          }
    result_.state = BenchState::kComplete;
    result_.reason.clear();
    return {};
  }

 private:
  const BenchPrompt& Shortest() const {
    return *std::min_element(options_.prompts.begin(), options_.prompts.end(), [](const auto& a, const auto& b) {
      return a.ids.size() + static_cast<size_t>(a.lengths.front()) <
             b.ids.size() + static_cast<size_t>(b.lengths.front());
    });
  }

  Status RunOnce(const BenchArm& arm, const BenchPrompt& prompt, int64_t new_tokens, int round) {
    if (result_.state == BenchState::kVoided) return {};
    const std::string what =
        Cat("arm ", arm.name, ", ", CaseName(prompt.name, new_tokens),
            round == 0 ? std::string(", warm-up") : Cat(", round ", round, " of ", options_.rounds));
    if (options_.cancel.cancelled()) return Fail(ErrorCode::kCancelled, "interrupted before ", what);
    if (options_.progress) options_.progress(Cat(what, Progress()));
    if (options_.make_cold) DFIN_TRY_VOID(options_.make_cold());
    Result<BenchRun> run = options_.runner(RunRequest{.arm = arm,
                                                      .prompt = prompt,
                                                      .new_tokens = new_tokens,
                                                      .round = round,
                                                      .devices = result_.devices,
                                                      .cancel = options_.cancel});
    if (!run) return FailWith(std::move(run), what);
    if (static_cast<int64_t>(run->ids.size()) != new_tokens ||
        run->prompt_tokens != static_cast<int64_t>(prompt.ids.size()))
      return Fail(ErrorCode::kInvalidArgument, what, ": expected ", new_tokens, " new tokens after ", prompt.ids.size(),
                  ", got ", run->ids.size(), " after ", run->prompt_tokens, ": is --context long enough?");
    result_.runs.push_back(std::move(*run));
    if (const std::string fault = check_.Add(result_.runs.back()); !fault.empty()) {
      result_.state = BenchState::kVoided;
      result_.reason = fault;
    } else if (options_.find_devices && result_.runs.size() <= options_.arms.size()) {
      LookForDevices();
    }
    if (options_.after_run) options_.after_run(result_);
    return {};
  }

  // ", run 3 of 36, about 12 min left": by what the runs so far took.
  std::string Progress() const {
    size_t all = static_cast<size_t>(options_.warm_ups) * options_.arms.size();
    for (const BenchPrompt& prompt : options_.prompts)
      all += static_cast<size_t>(options_.rounds) * options_.arms.size() * prompt.lengths.size();
    const size_t done = result_.runs.size();
    std::string text = Cat("; run ", done + 1, " of ", all);
    if (done == 0) return text;
    const double seconds = SecondsBetween(start_, clock_.NowNs()) / static_cast<double>(done);
    return Cat(text, ", about ", FormatSeconds(seconds * static_cast<double>(all - done)), " left");
  }

  // The bytes of runs are counted for a list of devices: those of another list say nothing.
  void LookForDevices() {
    std::vector<BenchDevice> devices = options_.find_devices(result_.runs.back().own_drives);
    if (devices.size() == result_.devices.size()) return;
    result_.devices = std::move(devices);
    for (BenchRun& run : result_.runs) {
      run.kernel_bytes.clear();
      run.samples.clear();
    }
  }

  const ProtocolOptions& options_;
  BenchResult& result_;
  TextCheck check_;
  const SteadyClock clock_;
  const int64_t start_ = clock_.NowNs();
};

std::string AnswersText(const ProtocolOptions& options) {
  size_t cases = 0;
  for (const BenchPrompt& prompt : options.prompts) cases += prompt.lengths.size();
  const std::string others =
      "every answer with those of the other rounds and, unless an arm may give other tokens, the other arms";
  if (options.expected.empty())
    return "compared with nothing from outside: first run of these texts (--expect, --expect-file); " + others;
  return Cat(options.expected.size(), " of ", cases, " prompts and lengths with the SHA-256 that was expected; ",
             others);
}

}  // namespace

std::vector<size_t> ArmOrder(size_t arms, int round) {
  std::vector<size_t> order(arms);
  std::iota(order.begin(), order.end(), size_t{0});
  if (arms == 0) return order;
  const auto turn = static_cast<size_t>(round);
  std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(turn % arms), order.end());
  if (turn / arms % 2 == 1) std::reverse(order.begin(), order.end());
  return order;
}

TextCheck::TextCheck(const std::vector<BenchArm>& arms, std::map<std::string, std::string> expected)
    : expected_(std::move(expected)) {
  for (const BenchArm& arm : arms) inexact_[arm.name] = arm.inexact;
}

std::string TextCheck::Add(const BenchRun& run) {
  const bool inexact = inexact_[run.arm];
  const std::string name = CaseName(run.prompt, run.new_tokens);
  const auto expected = expected_.find(name);
  if (!inexact && expected != expected_.end() && expected->second != run.ids_sha256)
    return Cat(Describe(run), ": expected ids with SHA-256 ", expected->second, ", got ", run.ids_sha256);
  const auto entry = known_.try_emplace({inexact ? run.arm : "", run.prompt}, Known{run.ids, Describe(run)}).first;
  Known& known = entry->second;
  const size_t common = std::min(known.ids.size(), run.ids.size());
  for (size_t i = 0; i < common; ++i)
    if (known.ids[i] != run.ids[i])
      return Cat(Describe(run), ": token ", i + 1, " is ", run.ids[i], ", it was ", known.ids[i], " in ", known.whose);
  if (run.ids.size() > common) known = {run.ids, Describe(run)};
  const auto [text, first] = texts_.try_emplace({inexact ? run.arm : "", name}, run.text_sha256);
  if (!first && text->second != run.text_sha256)
    return Cat(Describe(run), ": the text of the same ids changed: were the tokenizer's files changed?");
  return "";
}

Status CheckProtocol(const ProtocolOptions& options) {
  const auto refuse = [](const auto&... parts) { return Fail(ErrorCode::kInvalidArgument, parts...); };
  if (options.arms.empty() || options.prompts.empty() || options.rounds < 1)
    return refuse("bench run: expected at least one arm, prompt and round");
  std::set<std::string> names, cases;
  for (const BenchArm& arm : options.arms) {
    if (arm.name.empty()) return refuse("--arm: expected NAME:OPTIONS, got no name");
    if (!names.insert(arm.name).second) return refuse("--arm ", arm.name, ": this name is given twice");
  }
  for (const BenchPrompt& prompt : options.prompts) {
    if (prompt.ids.empty()) return refuse("prompt ", prompt.name, ": expected some text, got none");
    if (prompt.lengths.empty()) return refuse("prompt ", prompt.name, ": expected at least one length");
    for (const int64_t length : prompt.lengths)
      if (!cases.insert(CaseName(prompt.name, length)).second)
        return refuse(CaseName(prompt.name, length), ": this prompt and length are given twice");
  }
  for (const auto& [name, hash] : options.expected)
    if (cases.count(name) == 0)
      return refuse("--expect ", name, ": expected one of the cases that run, got another name");
  return {};
}

Status RunProtocol(const ProtocolOptions& options, BenchResult* result) {
  result->arms = options.arms;
  result->prompts = options.prompts;
  result->rounds = options.rounds;
  result->warm_ups = options.warm_ups;
  result->answers = AnswersText(options);
  result->state = BenchState::kPartial;
  result->reason = "it was not finished";
  const Status checked = CheckProtocol(options);
  if (!checked) {
    result->reason = checked.error().message();
    return checked;
  }
  const SteadyClock clock;
  const int64_t start = clock.NowNs();
  result->load_average_start = LoadAverage();
  if (options.find_devices) result->devices = options.find_devices({});
  Status ended = Protocol(options, result).Run();
  result->load_average_end = LoadAverage();
  result->seconds = SecondsBetween(start, clock.NowNs());
  if (!ended) {
    result->state = BenchState::kPartial;
    result->reason = ended.error().message();
  }
  return ended;
}

}  // namespace deltafin
