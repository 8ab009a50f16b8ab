// schema_check.h: invents JSON schemas, and says whether a value satisfies one, independent of src/text's grammar.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "text_test_support.h"

namespace deltafin::test {

using OrderedJson = nlohmann::ordered_json;

// A schema of objects, arrays, enumerations, numbers with bounds, strings with lengths and patterns, and references.
OrderedJson InventSchema(Random& random);

// "" or why `value` does not satisfy `schema`, whose references start at `root`.
std::string WhyInvalid(const OrderedJson& value, const OrderedJson& schema, const OrderedJson& root);

}  // namespace deltafin::test
