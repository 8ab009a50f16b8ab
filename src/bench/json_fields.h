// json_fields: members of JSON objects that somebody else wrote, without exceptions.
//
// A member that is missing or of another kind gives the default. Pure functions; the references live as long as the
// value they were taken from.
#pragma once

#include <string>

#include "base/json.h"

namespace deltafin {

// `value` when it is an object that has `key`, else a null value.
const Json& Member(const Json& value, const char* key);
double NumberOf(const Json& object, const char* key, double otherwise = 0);     // finite
uint64_t CountOf(const Json& object, const char* key, uint64_t otherwise = 0);  // a whole number, not negative
std::string TextOf(const Json& object, const char* key, std::string otherwise = "");
bool FlagOf(const Json& object, const char* key, bool otherwise = false);
// The elements of an array; an empty array for everything else.
const Json& ListOf(const Json& object, const char* key);

}  // namespace deltafin
