// Readers: a checkpoint and its scheduler, for checks that read a few bytes of weights.
//
// Opens only what is complete: other checks say what is not. Move-only; the scheduler dies first.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "doctor/subject.h"
#include "io/io_scheduler.h"

namespace deltafin {

struct Readers {
  std::unique_ptr<Checkpoint> checkpoint;
  int32_t first_other = 0;  // drive of the first of `others`
  std::unique_ptr<IoScheduler> io;

  // `others`: folders that get queues too, after those of the checkpoint.
  static Result<Readers> Open(const Subject& subject, const std::vector<std::string>& others);
};

}  // namespace deltafin
