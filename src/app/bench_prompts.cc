#include "app/bench_prompts.h"

#include <algorithm>
#include <filesystem>
#include <random>

#include "base/json.h"

namespace deltafin {
namespace {

constexpr uint64_t kMostPromptBytes = uint64_t{16} << 20;
constexpr size_t kMadeUpTokens = 24;

struct BuiltIn {
  const char* name;
  const char* text;
};

constexpr const char* kEssay =
    "The old lighthouse at the end of the pier had not been lit for thirty years. On the first evening of autumn a "
    "young "
    "engineer climbed its stairs with a lamp and a notebook, and wrote down what she found:";

constexpr const char* kCode =
    "# Reads a list of temperatures, one a line, and prints the mean and the hottest day.\n"
    "def read_temperatures(path):\n    values = []\n    with open(path) as lines:\n        for line in lines:\n";

constexpr const char* kTable =
    "station; opened; depth\nHarbour; 1931; 14\nMarket; 1931; 18\nCastle; 1934; 27\nUniversity; 1936; 31\n"
    "The stations in the order of the table are: Harbour, opened in 1931, 14 metres deep; Market, opened in 1931,";

// About 5,000 characters, so that tokenizers of every kind have 512 tokens of it.
constexpr const char* kLong =
    "A report on the water supply of a small town, written for its council.\n\n"
    "The town takes its water from three places: a spring in the hills, a well beside the river, and a reservoir that "
    "was built "
    "when the mill closed. The spring gives nine litres a second in winter and four in a dry summer. The well gives "
    "twelve, "
    "whatever the season, but its water is hard and has to be mixed. The reservoir holds enough for forty days. It is "
    "filled in spring, when the snow melts, and nobody may draw from it before the first of July unless the council "
    "says so.\n\n"
    "Every morning at six the keeper reads three gauges and writes the figures into a book with a green cover. The "
    "first column "
    "is the level of the reservoir in centimetres, the second the pressure in the main pipe, the third the flow from "
    "the "
    "spring. In the evening she does it again. Over the years the books have filled two shelves, and they show what no "
    "single day shows: the spring grows weaker by about one part in a hundred every year, and the summers in which the "
    "reservoir "
    "fell below its red mark have come closer together. There were two of them before the railway came, three in the "
    "thirty "
    "years after it, and four in the last ten.\n\n"
    "The pipes are of three kinds. Those below the old streets are of cast iron and leak at their joints; when the "
    "frost comes, "
    "one or two of them break. Those of the new quarter are of steel, and rust where the ground is wet. The newest are "
    "of plastic, "
    "thin and blue, and have given no trouble so far, although a gardener cut one with his spade in May. From the "
    "difference "
    "between what is pumped and what is paid for, the clerk has worked out that a fifth of the water never reaches a "
    "house. Half of that is lost in a single street, behind the church, where the iron pipe runs through gravel and "
    "nobody sees "
    "the water go.\n\n"
    "Four things could be done. The first is to lay a new pipe behind the church. It would cost as much as the school "
    "roof "
    "and save as much water as the spring loses in ten years. The second is to deepen the well by six metres; the "
    "drillers "
    "think that they would meet softer water there, but they would not promise it in writing. The third is to raise "
    "the wall of the "
    "reservoir by one metre, which gives eleven more days, and drowns the path on which people walk on Sundays. The "
    "fourth is to do "
    "nothing for a year, and to measure: to hang a meter on every branch, to read it each week, and to decide with "
    "figures in hand.\n\n"
    "The keeper is for the fourth, because she does not trust estimates, her own least of all. The clerk is for the "
    "first, since "
    "he can show what it saves. The drillers are for the second. The council has asked for a plan that does the "
    "cheapest "
    "thing first, and this report tries to give one. It begins with the meters, which cost little; it goes on with the "
    "street "
    "behind the church, as soon as the meters agree with the clerk; and it leaves the well and the wall for later, "
    "because both "
    "of them are hard to undo.\n\n"
    "What follows are the figures, month by month, and what was assumed where nobody had measured. Where a number was "
    "guessed it "
    "stands in brackets. Where two books contradict each other both are given, with the page, and the reader may "
    "choose. In January the "
    "spring gave nine litres a second, the well ran for three hours a day, and the reservoir stood at four hundred and "
    "ten "
    "centimetres. In February the pipe by the bridge broke twice. In March the snow melted within a week, the gauge of "
    "the main pipe "
    "was replaced, and for six days there are no figures at all. In April";

constexpr BuiltIn kBuiltIns[] = {{"essay", kEssay}, {"code", kCode}, {"table", kTable}, {"long", kLong}};

BenchPrompt Finish(std::string name, std::vector<TokenId> ids, std::vector<int64_t> lengths) {
  BenchPrompt prompt{std::move(name), std::move(ids), "", std::move(lengths)};
  prompt.ids_sha256 = IdsSha256(prompt.ids);
  return prompt;
}

Result<std::vector<TokenId>> IdsOf(const BuiltIn& prompt, size_t index, const Tokenizer* tokenizer,
                                   int64_t vocab_size) {
  const bool is_long = std::string(prompt.name) == "long";
  if (tokenizer == nullptr) {
    std::mt19937 random(static_cast<uint32_t>(index + 1));
    std::vector<TokenId> ids(is_long ? kLongPromptTokens : kMadeUpTokens);
    for (TokenId& id : ids)
      id = static_cast<TokenId>(random() % static_cast<uint32_t>(std::max<int64_t>(1, vocab_size * 3 / 4)));
    return ids;
  }
  std::vector<TokenId> ids = tokenizer->EncodeRaw(prompt.text);
  if (!is_long) return ids;
  if (ids.size() < kLongPromptTokens)
    return Fail(ErrorCode::kInvalidArgument, "prompt long: expected at least ", kLongPromptTokens,
                " tokens of it, got ", ids.size(), " by this model's tokenizer: choose others with --prompts");
  ids.resize(kLongPromptTokens);
  return ids;
}

}  // namespace

std::vector<std::string> BuiltInPromptNames() {
  std::vector<std::string> names;
  for (const BuiltIn& prompt : kBuiltIns) names.push_back(prompt.name);
  return names;
}

Result<std::vector<BenchPrompt>> MakeBenchPrompts(const PromptChoice& choice, const Tokenizer* tokenizer,
                                                  int64_t vocab_size) {
  std::vector<int64_t> lengths = choice.lengths;
  std::sort(lengths.begin(), lengths.end());
  std::vector<BenchPrompt> out;
  for (const std::string& file : choice.files) {
    if (tokenizer == nullptr)
      return Fail(ErrorCode::kInvalidArgument, "--prompt-file ", file,
                  ": the model folder has no tokenizer files: leave it out");
    Result<std::string> text = ReadWholeFile(file, kMostPromptBytes);
    if (!text) return Fail(ErrorCode::kInvalidArgument, "--prompt-file ", text.error().message());
    out.push_back(Finish(std::filesystem::path(file).stem().string(), tokenizer->EncodeRaw(*text), lengths));
  }
  for (const std::string& name : choice.names) {
    const auto* found =
        std::find_if(std::begin(kBuiltIns), std::end(kBuiltIns), [&](const BuiltIn& p) { return name == p.name; });
    if (found == std::end(kBuiltIns))
      return Fail(ErrorCode::kInvalidArgument, "--prompts ", name, ": expected essay, code, table or long");
    DFIN_TRY(std::vector<TokenId> ids, IdsOf(*found, static_cast<size_t>(found - kBuiltIns), tokenizer, vocab_size));
    // Of the long one the prompt is measured: one token ends it.
    out.push_back(Finish(name, std::move(ids), name == "long" ? std::vector<int64_t>{1} : lengths));
  }
  return out;
}

}  // namespace deltafin
