// xml_text: text as it may stand in XML and HTML, in elements and in quoted attributes.
//
// Names and messages may come from files that mean no good: markup is escaped, and control characters but newline and
// tab, which XML forbids, are left out. A pure function.
#pragma once

#include <string>
#include <string_view>

namespace deltafin {

std::string EscapeXml(std::string_view text);

}  // namespace deltafin
