#include "engine/memory_plan.h"

#include <algorithm>
#include <numeric>
#include <sstream>

#include "base/units.h"
#include "cache/expert_cache.h"
#include "draft/ngram_drafter.h"
#include "model/activations.h"
#include "model/kda_replay.h"
#include "model/sequence_state.h"

namespace deltafin {
namespace {

constexpr int64_t kDefaultContext = 8192;
constexpr int64_t kDefaultChunk = 4096;
// Part of what a plan has beyond its floor that kept prefixes may take.
constexpr uint64_t kPrefixCacheDivisor = 8;
// ... and that drafting may take where it was not asked for by name.
constexpr uint64_t kDraftingDivisor = 8;
constexpr int64_t kSmallestAutoChunk = 16;
// A chunk is not made shorter than this for the sake of keeping more dense weights in memory.
constexpr int64_t kShortChunk = 512;
constexpr int kRingBuffers = 2;
constexpr int64_t kMostSequences = 64;
// Part of the available memory that a plan without --memory leaves to the rest of the machine.
constexpr uint64_t kLeftToSystemDivisor = 10;
// Stacks, allocator slack, tokens and tables of a request.
constexpr uint64_t kReserveFixed = 16 * kMiB;
constexpr uint64_t kReserveDivisor = 200;  // page tables are 1/512 of what they map

class Planner {
 public:
  Planner(const EngineOptions& options, const ModelSpec& spec, const MemoryFacts& facts)
      : options_(options), spec_(spec), facts_(facts) {}

  Result<MemoryPlan> Make() {
    plan_.experts_total = spec_.num_moe_layers * spec_.num_experts;
    DFIN_TRY_VOID(ChooseContext());
    DFIN_TRY_VOID(CheckSwitches());
    plan_.draft_by = options_.draft;
    DFIN_TRY_VOID(ClaimDrafting());
    plan_.budget = options_.memory.value_or(facts_.available - facts_.available / kLeftToSystemDivisor);
    const uint64_t floor = FloorBytes();
    if (plan_.budget < floor) return RefuseBudget(floor);
    ChoosePrefixCache(plan_.budget - floor);
    ChooseDrafting(plan_.budget - floor);
    ChooseChunk();
    LimitDraftsToChunk();
    ChooseResidency();
    ShortenChunkForResidency();
    DFIN_TRY_VOID(CheckDraftModel());
    DFIN_TRY_VOID(ChooseSlots());
    WriteRows();
    return std::move(plan_);
  }

 private:
  Status ChooseContext() {
    const int64_t limit = spec_.max_position_embeddings;
    plan_.context = options_.context == 0 ? std::min(kDefaultContext, limit) : options_.context;
    if (plan_.context < 1 || plan_.context > limit)
      return Fail(ErrorCode::kInvalidArgument, "--context ", plan_.context, ": expected 1 to ", limit,
                  ", the model's max_position_embeddings");
    if (options_.chunk < 0 || options_.chunk > limit)
      return Fail(ErrorCode::kInvalidArgument, "--chunk ", options_.chunk, ": expected 1 to ", limit);
    if (options_.sequences < 1 || options_.sequences > kMostSequences)
      return Fail(ErrorCode::kInvalidArgument, "--parallel ", options_.sequences, ": expected 1 to ", kMostSequences);
    return {};
  }

  Status CheckSwitches() const {
    if (!options_.expert_cache) return {};
    const uint64_t floor = static_cast<uint64_t>(FloorSlots()) * facts_.slot_bytes;
    if (*options_.expert_cache >= floor) return {};
    return Fail(ErrorCode::kOutOfMemory, "--expert-cache ", FormatBytes(*options_.expert_cache), ": expected at least ",
                FloorSize(floor), ", ", FloorSlots(),
                " slots: one for each of a token's experts, twice that where they have copies");
  }

  static constexpr int64_t kMegabyte = 1'000'000;
  // A size that ParseSize reads back as no less than `bytes`, with room for what differs from one start to the next.
  static std::string FloorSize(uint64_t bytes) {
    return Cat(CeilDiv(static_cast<int64_t>(bytes), kMegabyte) + 1, "MB");
  }

  int64_t FloorSlots() const { return std::min(facts_.floor_slots, plan_.experts_total); }

  Failure RefuseBudget(uint64_t floor) const {
    const std::string what = options_.memory ? "--memory " : "available memory ";
    std::string with = Cat("--context ", plan_.context);
    if (options_.dense_mode == DenseMode::kResident) with += ", --dense-mode resident";
    if (options_.expert_cache) with += Cat(", --expert-cache ", FormatBytes(SlotBytesWanted()));
    if (options_.chunk != 0) with += Cat(", --chunk ", options_.chunk);
    if (plan_.draft_rows != 0) with += Cat(", --draft with up to ", plan_.draft_rows - 1, " drafts");
    if (plan_.draft_model) with += ", --draft-model";
    if (options_.sequences != 1) with += Cat(", --parallel ", options_.sequences);
    if (ResultBytes() != 0) with += Cat(", ", FormatBytes(ResultBytes()), " of results");
    return Fail(ErrorCode::kOutOfMemory, what, FormatBytes(plan_.budget), ": expected at least ", FloorSize(floor),
                " for this model with ", with, ": give more memory or ask for less");
  }

  // Checkpoints, and the latents of a whole context that they hold. It never takes what the plan cannot do without, and
  // of the rest little: an expert slot saves more time than a checkpoint that may not be wanted.
  void ChoosePrefixCache(uint64_t above_floor) {
    if (options_.prefix_checkpoints == 0) return;
    const uint64_t logits = static_cast<uint64_t>(spec_.vocab_size) * 4;
    const uint64_t one = SequenceState::KdaBytes(spec_) / 2 + logits + static_cast<uint64_t>(plan_.context) * 4;
    const uint64_t latents = SequenceState::MlaBytes(spec_, plan_.context, options_.kv_dtype);
    const uint64_t wanted = static_cast<uint64_t>(options_.prefix_checkpoints) * one + latents;
    const uint64_t room = std::min(wanted, above_floor / kPrefixCacheDivisor);
    if (room >= one) plan_.prefix_cache_bytes = room;
  }

  int64_t WantedDraftRows() const { return 1 + (options_.max_drafts == 0 ? kMostDrafts : options_.max_drafts); }
  // What is kept of a step until it is known which rows are right, a row of logits each, and what the drafter knows.
  uint64_t DraftBytes(int64_t rows) const {
    return KdaReplay::Bytes(spec_, rows) + static_cast<uint64_t>(rows * spec_.vocab_size) * 4 +
           NgramDrafter::Bytes(plan_.context + 1) + static_cast<uint64_t>(plan_.context) * sizeof(TokenId);
  }

  // A drafter that was asked for by name has its room before anything else.
  Status ClaimDrafting() {
    if (options_.max_drafts < 0 || options_.max_drafts > kMostDrafts)
      return Fail(ErrorCode::kInvalidArgument, "--max-drafts ", options_.max_drafts, ": expected 1 to ", kMostDrafts);
    if (options_.draft == DraftMode::kOff || options_.draft == DraftMode::kAuto) return {};
    const int64_t limit = std::min(plan_.context, options_.chunk == 0 ? plan_.context : options_.chunk);
    plan_.draft_rows = std::min(WantedDraftRows(), limit);
    if (plan_.draft_rows < 2 || (options_.max_drafts != 0 && plan_.draft_rows < WantedDraftRows()))
      return Fail(ErrorCode::kInvalidArgument, "--draft: a step with the drafts has ", WantedDraftRows(),
                  " rows: expected --chunk and --context to allow as many, got ", limit, ": raise them");
    plan_.draft_bytes = DraftBytes(plan_.draft_rows);
    plan_.draft_model = options_.draft == DraftMode::kDspark || options_.draft == DraftMode::kQwen;
    return {};
  }

  // Otherwise as many rows as a part of what is left allows.
  void ChooseDrafting(uint64_t above_floor) {
    if (options_.draft != DraftMode::kAuto) return;
    const uint64_t room = above_floor / kDraftingDivisor;
    int64_t rows = std::min(WantedDraftRows(), plan_.context);
    while (rows >= 2 && DraftBytes(rows) > room) --rows;
    if (rows < 2) return;
    plan_.draft_rows = rows;
    plan_.draft_bytes = DraftBytes(rows);
    if (!facts_.draft_model_bytes) return;
    // Dense weights come first: all of them are read for every token, a draft model's only for a proposal. Where nobody
    // said how long a chunk is, the model is counted with the longest.
    const uint64_t dense = AllDense() - FewestDenseBytes();
    const uint64_t model =
        facts_.draft_model_bytes(plan_.context, options_.chunk == 0 ? kDefaultChunk : options_.chunk);
    const uint64_t taken = dense + room + plan_.prefix_cache_bytes;
    plan_.draft_model = options_.dense_mode != DenseMode::kStream && taken + model <= above_floor;
  }

  // A DSpark drafter multiplies with the model's output matrix.
  Status CheckDraftModel() {
    if (!plan_.draft_model || !facts_.draft_needs_output_matrix || plan_.residency.resident.back()) return {};
    if (options_.draft == DraftMode::kDspark)
      return Fail(ErrorCode::kOutOfMemory,
                  "--draft dspark: expected the model's output matrix in memory, and the budget of ",
                  FormatBytes(plan_.budget), " streams it: give more memory, or --draft ngram");
    plan_.draft_model = false;
    return {};
  }
  uint64_t DraftModelBytes(int64_t chunk) const {
    return plan_.draft_model ? facts_.draft_model_bytes(plan_.context, chunk) : 0;
  }

  void LimitDraftsToChunk() {
    plan_.draft_rows = std::min(plan_.draft_rows, plan_.chunk);
    if (plan_.draft_rows < 2) plan_.draft_rows = 0;
    if (plan_.draft_rows == 0) plan_.draft_model = false;
    plan_.draft_bytes = plan_.draft_rows == 0 ? 0 : DraftBytes(plan_.draft_rows);
  }

  // Everything but dense weights and expert slots, for a chunk of so many rows.
  uint64_t FixedBytes(int64_t chunk) const {
    return facts_.program + options_.tokenizer_bytes + facts_.io_bytes + SequenceBytes() + StepBytes(chunk) +
           ResultBytes() + ReserveBytes() + plan_.prefix_cache_bytes + plan_.draft_bytes + DraftModelBytes(chunk);
  }
  // Of all sequences that are live at once.
  uint64_t SequenceBytes() const { return KdaBytes() + MlaBytes(); }
  uint64_t KdaBytes() const { return Sequences() * SequenceState::KdaBytes(spec_); }
  uint64_t MlaBytes() const {
    return Sequences() * SequenceState::MlaBytes(spec_, plan_.context, options_.kv_dtype) +
           SequenceState::MlaSlackBytes(spec_, options_.kv_dtype);
  }
  uint64_t Sequences() const { return static_cast<uint64_t>(options_.sequences); }
  // What the caller keeps: see EngineOptions. A tap row has three [H] values and a route a layer, embedding and norm.
  uint64_t ResultBytes() const {
    const auto layers = static_cast<int64_t>(spec_.layers.size());
    const int64_t route = spec_.num_moe_layers * spec_.num_experts_per_token * 12;
    const int64_t tap_row = (3 * layers + 2) * spec_.hidden_size * 4 + route;
    int64_t bytes = options_.result_logit_rows * spec_.vocab_size * 4 + options_.result_tap_rows * tap_row;
    if (options_.result_tap_rows != 0)  // and a copy of the state
      bytes += static_cast<int64_t>(SequenceState::KdaBytes(spec_)) / 2 +
               options_.result_logit_rows * spec_.num_mla_layers * spec_.latent_width() * 4;
    return static_cast<uint64_t>(bytes);
  }
  uint64_t StepBytes(int64_t chunk) const {
    // Logits and the sampler's copies of them.
    const uint64_t logits = static_cast<uint64_t>(spec_.vocab_size) * 24 * Sequences();
    // Rows of the embedding table that are read one by one, widened to whole blocks.
    const uint64_t embedding = static_cast<uint64_t>(chunk) * (static_cast<uint64_t>(spec_.hidden_size) * 4 + 8192);
    return Activations::Bytes(spec_, chunk) + facts_.workspace_bytes(chunk) + logits + embedding;
  }
  // A budget larger than everything there is to hold needs no larger reserve.
  uint64_t ReserveBytes() const {
    const uint64_t everything =
        AllDense() + static_cast<uint64_t>(plan_.experts_total) * facts_.slot_bytes + MlaBytes();
    return kReserveFixed + std::min(plan_.budget, everything) / kReserveDivisor;
  }

  uint64_t AllDense() const {
    return std::accumulate(facts_.unit_bytes.begin(), facts_.unit_bytes.end(), facts_.embedding_bytes);
  }
  uint64_t RingBytes(uint64_t largest_unit) const { return kRingBuffers * largest_unit; }

  // All of them where that was asked for, else the ring.
  uint64_t FewestDenseBytes() const {
    if (options_.dense_mode == DenseMode::kResident) return AllDense();
    return std::min(RingBytes(*std::max_element(facts_.unit_bytes.begin(), facts_.unit_bytes.end())), AllDense());
  }

  uint64_t FloorBytes() {
    const uint64_t dense = FewestDenseBytes();
    const int64_t chunk = options_.chunk == 0 ? FewestRows() : std::min(options_.chunk, plan_.context);
    // The reserve grows with the budget: the floor is where budget = without + budget / divisor, or a little less.
    const uint64_t without = FixedBytes(chunk) - ReserveBytes() + kReserveFixed + dense + SlotBytesWanted();
    return without + without / (kReserveDivisor - 1) + 1;
  }
  uint64_t SlotBytesWanted() const {
    const uint64_t all = static_cast<uint64_t>(plan_.experts_total) * facts_.slot_bytes;
    return std::min(all, options_.expert_cache.value_or(static_cast<uint64_t>(FloorSlots()) * facts_.slot_bytes));
  }

  // Of a chunk: drafting that was asked for by name needs its rows in one step.
  int64_t FewestRows() const { return options_.draft == DraftMode::kAuto ? 1 : std::max<int64_t>(plan_.draft_rows, 1); }

  void ChooseChunk() {
    const int64_t most = std::min(plan_.context, options_.chunk == 0 ? kDefaultChunk : options_.chunk);
    plan_.chunk = most;
    if (options_.chunk != 0) return;
    const uint64_t dense = FewestDenseBytes();
    const auto fits = [&](int64_t chunk) {
      if (FixedBytes(chunk) + dense + SlotBytesWanted() > plan_.budget) return false;
      return chunk <= kSmallestAutoChunk || StepBytes(chunk) <= plan_.budget / 16;
    };
    while (plan_.chunk > FewestRows() && !fits(plan_.chunk))
      plan_.chunk = std::max((plan_.chunk + 1) / 2, FewestRows());
  }

  void ChooseResidency() {
    const size_t units = facts_.unit_bytes.size();
    const uint64_t room = plan_.budget - FixedBytes(plan_.chunk) - SlotBytesWanted();
    ResidencyPlan& r = plan_.residency;
    r.resident.assign(units, false);
    r.embedding_resident =
        options_.dense_mode == DenseMode::kResident || (options_.dense_mode == DenseMode::kAuto && AllDense() <= room);
    if (r.embedding_resident) {
      r.resident.assign(units, true);
      plan_.resident_dense_bytes = AllDense();
      return;
    }
    r.ring_buffers = kRingBuffers;
    // The largest units first: the ring's buffers are as large as the largest unit that is left.
    std::vector<size_t> order(units);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return facts_.unit_bytes[a] > facts_.unit_bytes[b]; });
    const uint64_t all_units = AllDense() - facts_.embedding_bytes;
    if (options_.dense_mode == DenseMode::kAuto) {
      if (all_units <= room) {
        r.resident.assign(units, true);
        r.ring_buffers = 0;
      } else {
        KeepLargest(order, room);
      }
    }
    for (size_t u = 0; u < units; ++u)
      (r.resident[u] ? plan_.resident_dense_bytes : plan_.streamed_dense_bytes) += facts_.unit_bytes[u];
  }

  // With streamed weights a long chunk may cost a layer its place in memory, which every token then pays for.
  void ShortenChunkForResidency() {
    if (options_.chunk != 0 || options_.dense_mode != DenseMode::kAuto) return;
    MemoryPlan best = plan_;
    const auto shorten_to = [&](int64_t chunk) {
      plan_.chunk = chunk;
      plan_.resident_dense_bytes = plan_.streamed_dense_bytes = 0;
      plan_.residency = {};
      ChooseResidency();
      if (plan_.resident_dense_bytes > best.resident_dense_bytes) best = plan_;
    };
    for (int64_t chunk = plan_.chunk / 2; chunk >= kShortChunk; chunk /= 2) shorten_to(chunk);
    plan_ = best;
  }

  void KeepLargest(const std::vector<size_t>& order, uint64_t room) {
    size_t keep = 0;
    uint64_t kept = 0, sum = 0;
    for (size_t i = 0; i + 1 < order.size(); ++i) {
      sum += facts_.unit_bytes[order[i]];
      if (sum + RingBytes(facts_.unit_bytes[order[i + 1]]) <= room) {
        keep = i + 1;
        kept = sum;
      }
    }
    for (size_t i = 0; i < keep; ++i) plan_.residency.resident[order[i]] = true;
    // What is left over takes the largest further units that fit beside the ring, as long as two stay streamed.
    const uint64_t ring = RingBytes(facts_.unit_bytes[order[keep]]);
    for (size_t i = keep + 1; i + 1 < order.size(); ++i) {
      if (kept + ring + facts_.unit_bytes[order[i]] > room) continue;
      kept += facts_.unit_bytes[order[i]];
      plan_.residency.resident[order[i]] = true;
    }
  }

  uint64_t DenseBytes() const {
    uint64_t largest = 0;
    for (size_t u = 0; u < facts_.unit_bytes.size(); ++u)
      if (!plan_.residency.resident[u]) largest = std::max(largest, facts_.unit_bytes[u]);
    return plan_.resident_dense_bytes + (largest == 0 ? 0 : RingBytes(largest));
  }

  Status ChooseSlots() {
    const uint64_t used = FixedBytes(plan_.chunk) + DenseBytes();
    const uint64_t room = plan_.budget - std::min(plan_.budget, used);
    const uint64_t wanted = std::min(options_.expert_cache.value_or(room), room);
    plan_.expert_slots = std::min(static_cast<int64_t>(wanted / facts_.slot_bytes), plan_.experts_total);
    if (plan_.expert_slots >= FloorSlots()) return {};
    return RefuseBudget(used + SlotBytesWanted());
  }

  void WriteRows() {
    const auto add = [&](const char* name, uint64_t bytes, std::string note) {
      plan_.rows.push_back({name, bytes, std::move(note)});
    };
    const bool all = plan_.streamed_dense_bytes == 0;
    add("program", facts_.program + facts_.io_bytes, "code, libraries, file headers, read queues");
    add("tokenizer", options_.tokenizer_bytes, "");
    const std::string form = facts_.dense_packed ? "12-bit, " : "";
    add("dense weights", DenseBytes(),
        all ? form + "resident"
            : Cat(form, FormatBytes(plan_.resident_dense_bytes), " resident, ", FormatBytes(plan_.streamed_dense_bytes),
                  " streamed for every step"));
    add("expert slots", static_cast<uint64_t>(plan_.expert_slots) * facts_.slot_bytes,
        Cat(plan_.expert_slots, " of ", plan_.experts_total, " experts", PagesNote()));
    const std::string each = Sequences() == 1 ? "" : Cat(Sequences(), " sequences, ");
    add("MLA cache", MlaBytes(),
        Cat(each, plan_.context, " tokens", options_.kv_dtype == DType::kF32 ? "" : " in BF16",
            ", taken as they come"));
    add("KDA state", KdaBytes(), each + "current and next");
    if (plan_.prefix_cache_bytes != 0)
      add("prefix cache", plan_.prefix_cache_bytes, "kept beginnings of conversations");
    if (plan_.draft_rows != 0)
      add("drafting", plan_.draft_bytes, Cat("up to ", plan_.draft_rows - 1, " drafts a step"));
    else if (options_.draft != DraftMode::kOff)
      add("drafting", 0, "off: there is no room for it");
    if (plan_.draft_model)
      add("draft model", DraftModelBytes(plan_.chunk), "weights and context");
    else if (facts_.draft_model_bytes)
      add("draft model", 0, "off: there is no room for it");
    add("activations", StepBytes(plan_.chunk), Cat("steps of up to ", plan_.chunk, " rows"));
    if (ResultBytes() != 0) add("results", ResultBytes(), "kept until they are written");
    add("reserve", ReserveBytes(), "");
  }

  const char* PagesNote() const {
    if (!facts_.huge_pages) return "";
    return *facts_.huge_pages ? ", huge pages" : ", in 4 KiB pages: the system gives no huge ones, reads are slower";
  }

  const EngineOptions& options_;
  const ModelSpec& spec_;
  const MemoryFacts& facts_;
  MemoryPlan plan_;
};

}  // namespace

uint64_t MemoryPlan::total() const {
  uint64_t sum = 0;
  for (const MemoryRow& row : rows) sum += row.bytes;
  return sum;
}

std::string MemoryPlan::Describe() const {
  std::ostringstream out;
  const auto line = [&](const std::string& name, uint64_t bytes, const std::string& note) {
    std::string text = "  " + name + std::string(name.size() < 16 ? 16 - name.size() : 1, ' ');
    const std::string size = FormatBytes(bytes);
    text += std::string(size.size() < 9 ? 9 - size.size() : 0, ' ') + size;
    if (!note.empty()) text += "  " + note;
    out << text << '\n';
  };
  out << "memory plan (budget " << FormatBytes(budget) << ")\n";
  for (const MemoryRow& row : rows) line(row.name, row.bytes, row.note);
  line("total", total(), "");
  return out.str();
}

Result<MemoryPlan> MemoryPlan::Make(const EngineOptions& options, const ModelSpec& spec, const MemoryFacts& facts) {
  return Planner(options, spec, facts).Make();
}

}  // namespace deltafin
