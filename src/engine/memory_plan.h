// MemoryPlan: what goes where, decided before anything large is read.
//
// A budget is split into rows; their sum is at most the budget, or the plan is refused with the number that would work.
// Dense weights come first (every byte of them is needed for every token), then expert slots. Peak resident memory
// stays within the total + 5 %. A pure function of its inputs. Thread rule: a value type.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/tensor_store.h"
#include "engine/engine_options.h"
#include "spec/model_spec.h"

namespace deltafin {

// What the plan needs to know of the world.
struct MemoryFacts {
  uint64_t available = 0;            // bytes this process may use, its own included
  uint64_t program = 0;              // resident already: code, libraries, opened headers
  uint64_t slot_bytes = 0;           // of one expert slot
  int64_t floor_slots = 0;           // fewest of them; ExpertCache::Floor
  std::vector<uint64_t> unit_bytes;  // TensorStore::UnitBytes
  uint64_t embedding_bytes = 0;
  bool dense_packed = false;            // matrices of the units in 12 bits
  uint64_t io_bytes = 0;                // rings and request tables
  std::optional<bool> huge_pages = {};  // whether slots will lie in them; empty: not known
  // Scratch of the backend for steps of so many rows.
  std::function<uint64_t(int64_t rows)> workspace_bytes;
  // What a draft model needs in conversations of so many tokens with steps of so many rows; empty: there is none.
  std::function<uint64_t(int64_t context, int64_t rows)> draft_model_bytes = {};
  bool draft_needs_output_matrix = true;  // the model's, in memory
};

struct MemoryRow {
  std::string name;
  uint64_t bytes = 0;
  std::string note;
};

struct MemoryPlan {
  uint64_t budget = 0;
  std::vector<MemoryRow> rows;
  ResidencyPlan residency;
  uint64_t resident_dense_bytes = 0;
  uint64_t streamed_dense_bytes = 0;  // read again for every step
  int64_t expert_slots = 0;
  int64_t experts_total = 0;
  int64_t chunk = 0;
  int64_t context = 0;
  uint64_t prefix_cache_bytes = 0;  // budget of a PrefixCache; 0: none was asked for, or there is no room

  // Rows of a step that checks drafts (engine/drafting.h): the pending token and at most draft_rows - 1 drafts. 0: no
  // drafting, because none was asked for or because there is no room.
  int64_t draft_rows = 0;
  uint64_t draft_bytes = 0;
  bool draft_model = false;              // is part of it
  DraftMode draft_by = DraftMode::kOff;  // what was asked for

  uint64_t total() const;
  // The rows as lines of text, for stderr.
  std::string Describe() const;

  // kOutOfMemory ("at least SIZE"), kInvalidArgument (context beyond the model's limit, ...).
  static Result<MemoryPlan> Make(const EngineOptions& options, const ModelSpec& spec, const MemoryFacts& facts);
};

}  // namespace deltafin
