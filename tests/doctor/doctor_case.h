// doctor_case.h: runs doctor with a planted machine, and finds findings by their names.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "doctor/doctor.h"
#include "doctor/planted_host.h"

namespace deltafin::test {

// The options of a test: no self-test model, the real backends.
DoctorOptions OptionsFor(const std::string& model);

std::vector<Finding> Examine(const DoctorOptions& options, const Host& host);

// The first finding of that name; its state is kOk and its name empty where there is none.
Finding Named(const std::vector<Finding>& findings, const std::string& name);
// All that are faults or warnings, a line each: for messages.
std::string Problems(const std::vector<Finding>& findings);

// Expects a finding of this name and state whose text holds `text`.
void ExpectFinding(const std::vector<Finding>& findings, FindingState state, const std::string& name,
                   const std::string& text = "");

// A copy of k3-nano whose shards are links to the bundled ones.
void LinkNano(const std::string& folder);

}  // namespace deltafin::test
