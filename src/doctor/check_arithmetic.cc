// The bundled model's scores and answers, against those that another implementation computed: with every instruction
// set that this processor has, the scores; with the one that a run takes, whole answers.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/units.h"
#include "checkpoint/safetensors.h"
#include "doctor/checks.h"
#include "engine/generation.h"

namespace deltafin {
namespace {

constexpr double kTolerance = 2e-5;  // relative, of all scores together
constexpr uint64_t kMemory = 256 * kMiB;
constexpr int64_t kContext = 512;
constexpr uint64_t kMostExpected = 64 * kMiB;
constexpr const char* kWhy = "answers cannot be trusted: a processor, memory or build is faulty";
constexpr const char* kAdvice = "test the memory (memtest86+), lower overclocks, build again; try --isa avx2";
constexpr const char* kInstall =
    "install the program again (apt install ./deltafin_*.deb, or cmake --install) with its share/deltafin/models";

struct Expected {
  std::vector<TokenId> prompt;
  std::vector<float> logits;  // [prompt, vocabulary]
};

template <typename T>
Result<std::vector<T>> Tensor(const SafetensorsHeader& header, const std::string& bytes, std::string_view name,
                              DType dtype) {
  for (const TensorEntry& entry : header.tensors()) {
    if (entry.name != name || entry.dtype != dtype) continue;
    std::vector<T> values(static_cast<size_t>(entry.bytes / sizeof(T)));
    std::copy_n(bytes.data() + header.data_start() + entry.begin, values.size() * sizeof(T),
                reinterpret_cast<char*>(values.data()));
    return values;
  }
  return Fail(ErrorCode::kCorrupt, "expected.golden: ", name, ": expected this tensor, got none");
}

Result<Expected> ReadExpected(const std::string& folder) {
  const std::string path = folder + "/expected.golden";
  DFIN_TRY(const std::string bytes, ReadWholeFile(path, kMostExpected));
  DFIN_TRY(const uint64_t length, ReadHeaderLength(std::string_view(bytes).substr(0, 8), bytes.size(), path));
  DFIN_TRY(const SafetensorsHeader header,
           SafetensorsHeader::Parse(std::string_view(bytes).substr(8, static_cast<size_t>(length)), path));
  if (header.file_bytes() != bytes.size())
    return Fail(ErrorCode::kCorrupt, path, ": expected ", header.file_bytes(), " bytes, got ", bytes.size());
  Expected expected;
  DFIN_TRY(const std::vector<int64_t> ids, Tensor<int64_t>(header, bytes, "prompt_ids", DType::kI64));
  expected.prompt.assign(ids.begin(), ids.end());
  DFIN_TRY(expected.logits, Tensor<float>(header, bytes, "logits", DType::kF32));
  return expected;
}

struct TestEngine {
  EngineMonitor monitor;
  Logger logger{[](const std::string&) {}};
  std::unique_ptr<Engine> engine;

  Status Open(const Subject& subject, const std::string& isa) {
    EngineOptions options;
    options.model = subject.options.self_test_model;
    options.memory = kMemory;
    options.context = kContext;
    options.isa = isa;
    options.usage_counts = false;
    DFIN_TRY(engine, Engine::Create(options, {.backends = *subject.options.backends,
                                              .monitor = monitor,
                                              .logger = logger,
                                              .cancel = subject.options.cancel,
                                              .on_plan = {},
                                              .io_engine = {},
                                              .tune_io = {},
                                              .wrap_backend = {}}));
    return {};
  }
};

// Relative difference of all scores of the prompt; an error when it could not be computed.
Result<double> Difference(const Subject& subject, const Expected& expected, const std::string& isa) {
  TestEngine test;
  DFIN_TRY_VOID(test.Open(subject, isa));
  const int64_t vocab = test.engine->spec().vocab_size;
  std::vector<float> got(expected.prompt.size() * static_cast<size_t>(vocab));
  if (got.size() != expected.logits.size())
    return Fail(ErrorCode::kCorrupt, "expected.golden: expected ", got.size(), " scores, got ", expected.logits.size());
  DFIN_TRY(Session session, test.engine->NewSession());
  DFIN_TRY_VOID(test.engine->Feed(session, expected.prompt,
                                  Rows(got.data(), static_cast<int64_t>(expected.prompt.size()), vocab),
                                  subject.options.cancel));
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double d = static_cast<double>(got[i]) - expected.logits[i];
    difference += d * d;
    norm += static_cast<double>(expected.logits[i]) * expected.logits[i];
  }
  return std::sqrt(difference / norm);
}

void CheckScores(const Subject& subject, Findings& findings) {
  const Result<Expected> expected = ReadExpected(subject.options.self_test_model);
  if (!expected) {
    findings.Warning("self-test.not-run", expected.error().message(), "the arithmetic was not tested",
                     ByAdvice(kInstall));
    return;
  }
  for (const std::string& isa : subject.host.InstructionSets()) {
    const Result<double> difference = Difference(subject, *expected, isa);
    if (!difference)
      findings.Warning("self-test.not-run", isa + ": " + difference.error().message(), "the arithmetic was not tested",
                       ByCommand(Cat("deltafin run --model ", Quoted(subject.options.self_test_model),
                                     " --prompt-ids 1 --max-new 1"),
                                 "it should end in the same message: memory or a processor feature is lacking"));
    else if (!(*difference <= kTolerance))
      findings.Fault(
          "self-test.mismatch",
          Cat(isa, ": scores differ from the expected ones by ", *difference, " (", kTolerance, " is allowed)"), kWhy,
          ByAdvice(kAdvice));
    else
      findings.Ok("self-test.scores", Cat(isa, ": scores of ", expected->prompt.size(),
                                          " tokens agree with the expected ones (", *difference, ")"));
  }
}

std::optional<std::vector<TokenId>> Ids(const Json& of, const char* key) {
  const auto it = of.find(key);
  if (it == of.end() || !it->is_array()) return std::nullopt;
  std::vector<TokenId> ids;
  for (const Json& id : *it) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= uint64_t{1} << 31) return std::nullopt;
    ids.push_back(static_cast<TokenId>(id.get<uint64_t>()));
  }
  return ids.empty() ? std::nullopt : std::optional(std::move(ids));
}

struct AnswerCounts {
  size_t answers = 0, tokens = 0;
};

// Every answer of the file, or the first thing that is not as expected.
Result<AnswerCounts> CompareAnswers(const Subject& subject, const Json& cases, std::string* mismatch) {
  TestEngine test;
  DFIN_TRY_VOID(test.Open(subject, "auto"));
  AnswerCounts counts;
  for (const Json& c : cases) {
    if (!c.is_object()) return Fail(ErrorCode::kCorrupt, "expected_greedy.json: expected objects");
    const auto prompt = Ids(c, "prompt_ids"), expected = Ids(c, "new_ids");
    if (!prompt || !expected) return Fail(ErrorCode::kCorrupt, "expected_greedy.json: expected prompt_ids and new_ids");
    DFIN_TRY(Session session, test.engine->NewSession());
    GenerationRequest request;
    request.prompt = *prompt;
    request.max_new = static_cast<int64_t>(expected->size());
    request.cancel = subject.options.cancel;
    DFIN_TRY(const GenerationResult result, Generate(*test.engine, session, test.monitor, request));
    const auto [got, wanted] =
        std::mismatch(result.tokens.begin(), result.tokens.end(), expected->begin(), expected->end());
    if (got != result.tokens.end() || wanted != expected->end()) {
      *mismatch = Cat("answer ", counts.answers + 1, " differs from the expected one at token ",
                      (got - result.tokens.begin()) + 1, " of ", expected->size());
      return counts;
    }
    ++counts.answers;
    counts.tokens += expected->size();
  }
  return counts;
}

void CheckAnswers(const Subject& subject, Findings& findings) {
  const std::string path = subject.options.self_test_model + "/expected_greedy.json";
  Result<Json> file = ReadJsonFile(path);
  if (!file) {
    findings.Warning("self-test.not-run", file.error().message(), "the arithmetic was not tested", ByAdvice(kInstall));
    return;
  }
  const Json cases = file->is_array() ? *file : Json::array({*file});
  std::string mismatch;
  const Result<AnswerCounts> counts = CompareAnswers(subject, cases, &mismatch);
  if (!counts)
    findings.Warning(
        "self-test.not-run", counts.error().message(), "the arithmetic was not tested",
        ByCommand(Cat("deltafin run --model ", Quoted(subject.options.self_test_model), " --prompt-ids 1 --max-new 1"),
                  "it should end in the same message: memory or a processor feature is lacking"));
  else if (!mismatch.empty())
    findings.Fault("self-test.mismatch", mismatch, kWhy, ByAdvice(kAdvice));
  else
    findings.Ok("self-test.answers", Cat(counts->answers, counts->answers == 1 ? " answer" : " answers", " of ",
                                         counts->tokens, " tokens, as expected"));
}

}  // namespace

void CheckArithmetic(const Subject& subject, Findings& findings) {
  if (subject.host.InstructionSets().empty()) return;
  if (subject.options.self_test_model.empty()) {
    findings.Warning("self-test.no-model", "the bundled model (k3-nano) was not found", "the arithmetic was not tested",
                     ByAdvice(kInstall));
    return;
  }
  CheckScores(subject, findings);
  CheckAnswers(subject, findings);
}

}  // namespace deltafin
