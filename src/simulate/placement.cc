#include "simulate/placement.h"

#include "base/check.h"
#include "synth/random.h"

namespace deltafin::simulate {
namespace {

// A number in 0 .. 1 that belongs to the record.
double FractionOf(int64_t key) {
  return static_cast<double>(MixSeed(static_cast<uint64_t>(key), uint64_t{77}) >> 11) * 0x1p-53;
}

}  // namespace

Result<LayoutKind> ParseLayout(std::string_view text) {
  for (const LayoutKind kind : {LayoutKind::kStriped, LayoutKind::kMirrored, LayoutKind::kShards})
    if (text == ToString(kind)) return kind;
  return Fail(ErrorCode::kInvalidArgument, "--layout ", text, ": expected shards, mirrored or striped");
}

std::string_view ToString(LayoutKind kind) {
  switch (kind) {
    case LayoutKind::kStriped:
      return "striped";
    case LayoutKind::kMirrored:
      return "mirrored";
    case LayoutKind::kShards:
      return "shards";
    case LayoutKind::kWeighted:
      return "weighted";
    case LayoutKind::kHotOnFastest:
      return "hot on the fastest";
  }
  return "";
}

Placement::Placement(const Layout& layout, const Machine& machine) : layout_(layout), fastest_(machine.fastest()) {
  std::vector<double> behind(machine.hub_rates.size(), 0);
  for (const Drive& d : machine.drives)
    if (d.hub >= 0) behind[static_cast<size_t>(d.hub)] += d.bytes_per_second;
  for (const Drive& d : machine.drives) {
    double rate = d.bytes_per_second;
    if (d.hub >= 0) {
      const auto hub = static_cast<size_t>(d.hub);
      if (behind[hub] > machine.hub_rates[hub]) rate *= machine.hub_rates[hub] / behind[hub];
    }
    rates_.push_back(rate);
    sum_ += rate;
  }
  if (layout_.kind == LayoutKind::kWeighted)
    DFIN_CHECK(layout_.held.size() == rates_.size(), "a weighted layout says what every drive holds");
}

bool Placement::Holds(size_t drive, int64_t key, double rank) const {
  switch (layout_.kind) {
    case LayoutKind::kStriped:
    case LayoutKind::kMirrored:
      return true;
    case LayoutKind::kShards:
      return drive == fastest_;
    case LayoutKind::kWeighted:
      return rank < layout_.held[drive];
    case LayoutKind::kHotOnFastest:
      break;
  }
  const bool hot = rank < layout_.held[0];
  if (hot || rates_.size() == 1) return drive == fastest_;
  // One of the others, in proportion to their rates.
  double at = FractionOf(key) * (sum_ - rates_[fastest_]);
  size_t last = fastest_;
  for (size_t d = 0; d < rates_.size(); ++d) {
    if (d == fastest_) continue;
    last = d;
    if ((at -= rates_[d]) < 0) break;
  }
  return drive == last;
}

size_t Placement::Unbalanced(int64_t key, double rank) const {
  double sum = 0;
  const auto weight = [&](size_t d) { return layout_.fixed_shares.empty() ? 1.0 : layout_.fixed_shares[d]; };
  for (size_t d = 0; d < rates_.size(); ++d)
    if (Holds(d, key, rank)) sum += weight(d);
  double at = FractionOf(key) * sum;
  size_t last = 0;
  for (size_t d = 0; d < rates_.size(); ++d) {
    if (!Holds(d, key, rank)) continue;
    last = d;
    if ((at -= weight(d)) < 0) break;
  }
  return last;
}

void Placement::Pieces(int64_t key, double rank, double bytes, bool ahead, const DriveBank& bank,
                       std::vector<Piece>* out) const {
  out->clear();
  if (layout_.kind == LayoutKind::kStriped) {
    for (size_t d = 0; d < rates_.size(); ++d) out->push_back({d, bytes * rates_[d] / sum_});
    return;
  }
  if (!layout_.balanced) {
    out->push_back({Unbalanced(key, rank), bytes});
    return;
  }
  size_t best = rates_.size();
  double soonest = 0;
  for (size_t d = 0; d < rates_.size(); ++d) {
    if (!Holds(d, key, rank)) continue;
    const double before = bank.backlog_bytes(d) + (ahead ? bank.ahead_bytes(d) : 0);
    const double ends = (before + bytes) / rates_[d];
    if (best < rates_.size() && ends >= soonest) continue;
    best = d;
    soonest = ends;
  }
  DFIN_CHECK(best < rates_.size(), "every record lies somewhere");
  out->push_back({best, bytes});
}

}  // namespace deltafin::simulate
