#include "bench/compare.h"

#include <algorithm>
#include <cmath>

namespace deltafin {
namespace {

Result<std::string> ArmOf(const BenchFile& file, const std::string& wanted, const char* option) {
  std::string names;
  for (const BenchArm& arm : file.arms) {
    if (arm.name == wanted) return wanted;
    names += Cat(names.empty() ? "" : ", ", arm.name);
  }
  if (wanted.empty() && file.arms.size() == 1) return file.arms.front().name;
  if (wanted.empty())
    return Fail(ErrorCode::kInvalidArgument, file.name, ": has the arms ", names, ": choose one with ", option);
  return Fail(ErrorCode::kInvalidArgument, option, " ", wanted, ": ", file.name, " has the arms ", names);
}

bool IsInexact(const BenchFile& file, const std::string& name) {
  return std::any_of(file.arms.begin(), file.arms.end(),
                     [&](const BenchArm& arm) { return arm.name == name && arm.inexact; });
}

Status CheckStates(const BenchFile& a, const BenchFile& b) {
  for (const BenchFile* file : {&a, &b})
    if (file->state == "voided")
      return Fail(ErrorCode::kInvalidArgument, file->name, ": is voided, so no number of it counts: ", file->reason);
  if (a.model_sha256 != b.model_sha256)
    return Fail(ErrorCode::kInvalidArgument, a.name, " and ", b.name,
                ": are of two models (config.json differs): they do not compare");
  return {};
}

ComparedRate CompareSeries(const Series& a, const Series& b, bool paired) {
  ComparedRate out;
  if (a.values.empty() || b.values.empty()) return out;
  out.a = a.spread();
  out.b = b.spread();
  out.ratio = paired ? RatioOfPairs(a.values, b.values) : RatioOfMedians(a.values, b.values);
  return out;
}

const CaseFigures* Find(const BenchFile& file, const std::string& arm, const CaseFigures& like) {
  for (const CaseFigures& f : file.figures)
    if (f.arm == arm && f.prompt == like.prompt && f.new_tokens == like.new_tokens) return &f;
  return nullptr;
}

void NoteFiles(const BenchFile& a, const BenchFile& b, Comparison* out) {
  for (const BenchFile* file : {&a, &b})
    if (file->state != "complete") out->notes.push_back(Cat(file->name, " is ", file->state, ": ", file->reason));
  for (const std::string& difference : MachineDifferences(a.machine, b.machine))
    out->notes.push_back("the machines or programs differ: " + difference);
}

// Of all cases, once they are there.
void Sum(Comparison* out) {
  double logs = 0;
  for (const ComparedCase& c : out->cases) {
    logs += std::log(c.inclusive.ratio.ratio);
    out->faster += c.inclusive.ratio.ratio > 1 ? 1 : 0;
  }
  const auto n = static_cast<int>(out->cases.size());
  out->mean_ratio = std::exp(logs / n);
  out->sign_probability = SignTest(out->faster, n);
}

}  // namespace

Result<Comparison> CompareResults(const BenchFile& a, const BenchFile& b, const std::string& arm_a,
                                  const std::string& arm_b) {
  DFIN_TRY_VOID(CheckStates(a, b));
  Comparison out;
  out.name_a = a.name;
  out.name_b = b.name;
  DFIN_TRY(out.arm_a, ArmOf(a, arm_a, "--arm-a"));
  DFIN_TRY(out.arm_b, ArmOf(b, arm_b, "--arm-b"));
  const bool one_run = a.started == b.started && a.name == b.name;
  out.paired = one_run;
  NoteFiles(a, b, &out);
  const bool inexact = IsInexact(a, out.arm_a) || IsInexact(b, out.arm_b);
  if (inexact) out.notes.push_back("an arm is marked inexact: its text may differ");
  for (const CaseFigures& left : a.figures) {
    if (left.arm != out.arm_a) continue;
    const CaseFigures* right = Find(b, out.arm_b, left);
    if (right == nullptr) continue;
    const auto prompt_a = a.prompt_sha256.find(left.prompt), prompt_b = b.prompt_sha256.find(left.prompt);
    if (prompt_a == a.prompt_sha256.end() || prompt_b == b.prompt_sha256.end() ||
        prompt_a->second != prompt_b->second) {
      out.notes.push_back(left.name() + ": left out, the prompts are not the same ids");
      continue;
    }
    const bool paired = one_run && left.rounds == right->rounds;
    out.paired = out.paired && paired;
    ComparedCase c{left.prompt,
                   left.new_tokens,
                   CompareSeries(left.steady, right->steady, paired),
                   CompareSeries(left.inclusive, right->inclusive, paired),
                   CompareSeries(left.first_token, right->first_token, paired),
                   left.ids_sha256 == right->ids_sha256};
    if (!c.same_ids)
      out.notes.push_back(Cat(c.name(), ": the answers differ (SHA-256 of the ids ", left.ids_sha256.substr(0, 12),
                              " and ", right->ids_sha256.substr(0, 12), "): these are speeds of two different texts"));
    out.cases.push_back(std::move(c));
  }
  if (out.cases.empty())
    return Fail(ErrorCode::kInvalidArgument, a.name, " and ", b.name,
                ": have no prompt and length in common: they do not compare");
  Sum(&out);
  return out;
}

}  // namespace deltafin
