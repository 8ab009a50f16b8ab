#include "checkpoint/expert_cut.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace deltafin {
namespace {

double Usable(double rate) { return std::isfinite(rate) && rate > 0 ? rate : 0; }

// Pages of each drive by largest remainder; they add up to `pages`.
std::vector<uint64_t> SharePages(uint64_t pages, std::span<const double> rates) {
  // Scaled by the largest, so that neither the sum nor a product overflows.
  double largest = 0, sum = 0;
  for (const double rate : rates) largest = std::max(largest, Usable(rate));
  DFIN_CHECK(largest > 0, "a cut needs a drive with a rate");
  for (const double rate : rates) sum += Usable(rate) / largest;

  std::vector<uint64_t> shares(rates.size(), 0);
  std::vector<double> remainders(rates.size(), -1);
  uint64_t left = pages;
  for (size_t d = 0; d < rates.size(); ++d) {
    if (Usable(rates[d]) == 0) continue;
    const double exact = static_cast<double>(pages) * (Usable(rates[d]) / largest) / sum;
    shares[d] = std::min(left, static_cast<uint64_t>(exact));
    remainders[d] = exact - static_cast<double>(shares[d]);
    left -= shares[d];
  }
  std::vector<size_t> order(rates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return remainders[a] > remainders[b]; });
  const auto usable =
      static_cast<size_t>(std::count_if(remainders.begin(), remainders.end(), [](double r) { return r > -1; }));
  for (size_t i = 0; left > 0; i = (i + 1) % usable, --left) ++shares[order[i]];
  return shares;
}

// Pieces of [begin, end) for the drives in `order`, which have `shares` pages.
void AppendPieces(uint64_t begin, uint64_t page, std::span<const size_t> order, std::span<const uint64_t> shares,
                  std::vector<CutPiece>& pieces) {
  for (const size_t drive : order) {
    const uint64_t end = begin + shares[drive] * page;
    if (end > begin) pieces.push_back({static_cast<int32_t>(drive), begin, end});
    begin = end;
  }
}

bool ByBegin(const CutPiece& a, const CutPiece& b) { return a.begin < b.begin; }

// Takes `bytes` off the end of what `drive` has in `pieces` and adds them to `freed`.
void GiveUp(std::vector<CutPiece>& pieces, int32_t drive, uint64_t bytes, std::vector<CutPiece>& freed) {
  for (size_t i = pieces.size(); i-- > 0 && bytes > 0;) {
    if (pieces[i].drive != drive) continue;
    const uint64_t taken = std::min(bytes, pieces[i].bytes());
    pieces[i].end -= taken;
    freed.push_back({drive, pieces[i].end, pieces[i].end + taken});
    bytes -= taken;
  }
}

uint64_t BytesOn(std::span<const CutPiece> pieces, int32_t drive) {
  uint64_t bytes = 0;
  for (const CutPiece& piece : pieces)
    if (piece.drive == drive) bytes += piece.bytes();
  return bytes;
}

// Bytes that lie on another drive in `after` than in `before`; both cover the same bytes in ascending order.
uint64_t MovedBytes(std::span<const CutPiece> before, std::span<const CutPiece> after) {
  uint64_t moved = 0;
  for (const CutPiece& a : before)
    for (const CutPiece& b : after)
      if (a.drive != b.drive && a.begin < b.end && b.begin < a.end)
        moved += std::min(a.end, b.end) - std::max(a.begin, b.begin);
  return moved;
}

// Gives the freed ranges, in order, to drives that are to grow, in theirs. room[d]: bytes that drive d is to gain.
void TakeFreed(std::span<const CutPiece> freed, std::vector<uint64_t> room, std::vector<CutPiece>& pieces) {
  size_t drive = 0;
  for (CutPiece gap : freed)
    while (gap.bytes() > 0) {
      while (room[drive] == 0) ++drive;
      const uint64_t taken = std::min(room[drive], gap.bytes());
      pieces.push_back({static_cast<int32_t>(drive), gap.begin, gap.begin + taken});
      gap.begin += taken;
      room[drive] -= taken;
    }
}

}  // namespace

std::vector<CutPiece> CutRecord(uint64_t record_bytes, uint64_t page, std::span<const double> rates) {
  DFIN_CHECK(page > 0 && record_bytes % page == 0, "a record has whole pages");
  const std::vector<uint64_t> shares = SharePages(record_bytes / page, rates);
  std::vector<size_t> order(rates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<CutPiece> pieces;
  AppendPieces(0, page, order, shares, pieces);
  return pieces;
}

std::vector<CutPiece> CutReplica(std::span<const CutPiece> pieces, uint64_t page, std::span<const double> rates) {
  const auto drives =
      static_cast<size_t>(std::count_if(rates.begin(), rates.end(), [](double r) { return Usable(r) > 0; }));
  if (drives < 2 || pieces.empty()) return {};
  const size_t most_others = std::max<size_t>(1, kMaxCutPieces / pieces.size());
  std::vector<CutPiece> replica;
  for (const CutPiece& piece : pieces) {
    // The others in turn, beginning after the piece's own drive, so that a bound on their number is fair to all.
    std::vector<size_t> order;
    std::vector<double> others(rates.size(), 0);
    for (size_t step = 1; step < rates.size() + 1 && order.size() < most_others; ++step) {
      const size_t drive = (static_cast<size_t>(piece.drive) + step) % rates.size();
      if (drive == static_cast<size_t>(piece.drive) || Usable(rates[drive]) == 0) continue;
      order.push_back(drive);
      others[drive] = rates[drive];
    }
    AppendPieces(piece.begin, page, order, SharePages(piece.bytes() / page, others), replica);
  }
  std::sort(replica.begin(), replica.end(), ByBegin);
  return replica;
}

Recut RecutRecord(std::span<const CutPiece> pieces, uint64_t page, std::span<const double> rates) {
  std::vector<CutPiece> kept(pieces.begin(), pieces.end());
  std::sort(kept.begin(), kept.end(), ByBegin);
  const std::vector<CutPiece> before = kept;
  uint64_t record_bytes = 0;
  int32_t last_drive = static_cast<int32_t>(rates.size()) - 1;
  for (const CutPiece& piece : pieces) {
    record_bytes += piece.bytes();
    last_drive = std::max(last_drive, piece.drive);
  }
  std::vector<uint64_t> room = SharePages(record_bytes / page, rates);
  room.resize(static_cast<size_t>(last_drive) + 1, 0);
  Recut recut;
  std::vector<CutPiece> freed;
  for (int32_t drive = 0; drive <= last_drive; ++drive) {
    uint64_t& bytes = room[static_cast<size_t>(drive)];
    bytes *= page;
    const uint64_t has = BytesOn(before, drive);
    if (has > bytes) GiveUp(kept, drive, has - bytes, freed);
    bytes -= std::min(bytes, has);
  }
  for (const CutPiece& piece : kept)
    if (piece.bytes() > 0) recut.pieces.push_back(piece);
  for (const CutPiece& gap : freed) recut.moved_bytes += gap.bytes();
  std::sort(freed.begin(), freed.end(), ByBegin);
  TakeFreed(freed, std::move(room), recut.pieces);
  std::sort(recut.pieces.begin(), recut.pieces.end(), ByBegin);
  if (recut.pieces.size() > kMaxCutPieces) {
    recut.pieces = CutRecord(record_bytes, page, rates);
    recut.moved_bytes = MovedBytes(before, recut.pieces);
  }
  return recut;
}

}  // namespace deltafin
