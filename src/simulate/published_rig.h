// published_rig: the machines of the published measurements, as the simulator describes them.
//
// M5 Max, 128 GB, an internal drive and three outside ones; what lay on which; how its drafter behaved; and two other
// machines that a target each was measured on. Constants in functions; source: the published drive ladder, placement
// and logs. All numbers, and which of them were chosen, are listed in docs/PLANNING.md.
#pragma once

#include <vector>

#include "simulate/placement.h"
#include "simulate/runs.h"
#include "simulate/simulation.h"

namespace deltafin::simulate {

// The first `count` of its drives. Memory bandwidth and arithmetic are assumptions for engines that compute otherwise.
Machine ReferenceRig(size_t count);
// Copies as the published engine had them: full ones on one and two drives, by use on three and four.
Layout PublishedLayout(size_t count);
// What the published engine does with `count` of the drives; its experts stay nowhere.
Setup PublishedSetup(const ModelShape& shape, size_t count, uint64_t seed);
// Numbers of drafts as counted in a published log; the chance for which `part` of all drafts are right.
DraftHabits PublishedDrafts(double part);

// One drive of 6.6 GB/s that holds the files as released; dense weights are read again for every token; one layer of
// look-ahead.
Setup PublishedSingleDrive(const ModelShape& shape, uint64_t seed);
// Another model (GLM-5.2) on two equal drives, of which the second is asked for `share` of the records; with what its
// routing is taken to be.
Setup PublishedMirror(const ModelShape& shape, double share, uint64_t seed);
RoutingStatistics MirrorStatistics();

struct PublishedRun {
  double seconds_first_token = 0;
  DecodeRun decode;
  double inclusive() const { return (1 + decode.tokens) / (seconds_first_token + decode.totals.seconds); }
};
// A short prompt and 128 tokens.
PublishedRun RunPublished(const Setup& setup, const DraftHabits& drafts);

}  // namespace deltafin::simulate
