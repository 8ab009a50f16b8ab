// Subject: what one call of doctor looks at: options, machine, and what several checks need to know about the files.
//
// Made once, before the checks. Refers to options and host, which outlive it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/inspect.h"
#include "doctor/doctor.h"

namespace deltafin {

struct Subject {
  static Subject Make(const DoctorOptions& options, const Host& host);

  const DoctorOptions& options;
  const Host& host;
  std::optional<FolderReport> report;  // empty: no model was named, or its folder cannot be looked at
  std::string report_problem;          // why
  std::vector<std::string> experts;    // folders, named or noted
  bool experts_noted = false;          // by pack
  std::string noted_problem;           // what pack noted cannot be read
  bool weights_have_faults = false;    // as an earlier check found

  bool has_model() const { return !options.model.empty(); }
  // Experts are fetched as a run wants them.
  bool is_streamed() const { return experts.empty() && report && report->stream; }
  // The weights are all there, as far as headers and manifests tell.
  bool weights_complete() const { return report && report->weights_complete; }
};

// A folder that is read or written, with the part it plays: "model", "experts", "dense", "state".
struct NamedFolder {
  std::string role;
  std::string path;
};
std::vector<NamedFolder> FoldersOf(const Subject& subject);
// The folder, or the nearest one above it that is there.
std::string NearestFolder(const Host& host, const std::string& folder);
// Files that a run reads from the folder and that are there: full paths.
std::vector<std::string> FilesOf(const Subject& subject, const NamedFolder& folder);

// In single quotes where a shell would need them.
std::string Quoted(const std::string& path);

}  // namespace deltafin
