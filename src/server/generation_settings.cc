#include "server/generation_settings.h"

#include <chrono>
#include <cstdlib>
#include <random>

namespace deltafin {
namespace {

void ReadLogitBias(RequestFields& fields, const ServerContext& context,
                   std::vector<std::pair<TokenId, float>>* biases) {
  const PythonJson* object = fields.Object("logit_bias");
  if (object == nullptr) return;
  if (std::ssize(object->members) > context.limits.logit_biases)
    return fields.Fault("logit_bias", Cat("at most ", context.limits.logit_biases, " tokens"));
  for (const PythonJsonMember& member : object->members) {
    char* end = nullptr;
    const long id = std::strtol(member.key.c_str(), &end, 10);
    if (member.key.empty() || *end != 0 || id < 0 || id >= context.tokenizer.token_count())
      return fields.Fault("logit_bias", Cat("token ids from 0 to ", context.tokenizer.token_count() - 1, " as keys"));
    double bias = 1000;
    if (member.value.kind == PythonJson::Kind::kFloat) bias = member.value.number;
    if (member.value.kind == PythonJson::Kind::kInteger) bias = std::strtod(member.value.text.c_str(), nullptr);
    if (!(bias >= -100 && bias <= 100)) return fields.Fault("logit_bias", "numbers from -100 to 100 as values");
    biases->emplace_back(static_cast<TokenId>(id), static_cast<float>(bias));
  }
}

}  // namespace

std::string NewId(std::string_view prefix) {
  static const char kAlphabet[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::random_device random;
  std::string id(prefix);
  for (int i = 0; i < 24; ++i) id.push_back(kAlphabet[random() % (sizeof kAlphabet - 1)]);
  return id;
}

int64_t SecondsSince1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void ReadSampling(RequestFields& fields, const SamplingParams& defaults, SamplingParams* sampling) {
  *sampling = defaults;
  sampling->temperature = fields.Number("temperature", 0, 2).value_or(defaults.temperature);
  // 0 keeps the likeliest token only.
  sampling->top_p = std::max(fields.Number("top_p", 0, 1).value_or(defaults.top_p), 1e-9);
  const int64_t top_k = fields.Whole("top_k", -1, 1 << 30).value_or(defaults.top_k);
  sampling->top_k = std::max<int64_t>(top_k, 0);  // -1 is off, as elsewhere
  sampling->min_p = fields.Number("min_p", 0, 1).value_or(defaults.min_p);
  const std::optional<int64_t> seed = fields.Whole("seed", INT64_MIN, INT64_MAX);
  std::random_device random;
  sampling->seed =
      seed ? static_cast<uint64_t>(*seed) : (static_cast<uint64_t>(random()) << 32) | static_cast<uint64_t>(random());
}

void ReadStops(RequestFields& fields, std::string_view name, const RequestLimits& limits,
               std::vector<std::string>* stops) {
  const PythonJson* value = fields.Any(name);
  if (value == nullptr) return;
  std::vector<PythonJson> items;
  if (value->is_string())
    items.push_back(*value);
  else if (value->is_array())
    items = value->items;
  else
    return fields.Fault(name, "a string or a list of strings");
  if (std::ssize(items) > limits.stops) return fields.Fault(name, Cat("at most ", limits.stops, " strings"));
  for (const PythonJson& item : items) {
    if (!item.is_string() || item.text.empty() || std::ssize(item.text) > limits.stop_bytes)
      return fields.Fault(name, Cat("strings of 1 to ", limits.stop_bytes, " bytes"));
    stops->push_back(item.text);
  }
}

void ReadCommonSettings(RequestFields& fields, const ServerContext& context, GenerationSettings* settings) {
  SamplingParams& sampling = settings->sampling;
  ReadSampling(fields, context.defaults, &sampling);
  sampling.presence_penalty = fields.Number("presence_penalty", -2, 2).value_or(sampling.presence_penalty);
  sampling.frequency_penalty = fields.Number("frequency_penalty", -2, 2).value_or(sampling.frequency_penalty);
  sampling.repetition_penalty = fields.Number("repetition_penalty", 0.01, 100).value_or(sampling.repetition_penalty);
  ReadLogitBias(fields, context, &settings->logit_bias);
  ReadStops(fields, "stop", context.limits, &settings->stops);
  settings->choices = fields.Whole("n", 1, context.limits.choices).value_or(1);
  settings->stream = fields.Bool("stream").value_or(false);
  if (const PythonJson* options = fields.Object("stream_options")) {
    RequestFields inner(*options, fields.Path("stream_options"));
    settings->include_usage = inner.Bool("include_usage").value_or(false);
    inner.Ignore({"include_obfuscation"});
    if (std::optional<ApiError> fault = inner.Finish()) fields.Fault(*fault);
    if (!settings->stream)
      fields.Fault(ApiError{400, "stream_options: only with stream: true", "stream_options", "invalid_value"});
  }
}

}  // namespace deltafin
