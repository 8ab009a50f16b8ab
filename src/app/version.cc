#include "app/version.h"

#include "text/unicode_classes.h"

namespace deltafin {

std::string VersionText() {
  return std::string("deltafin ") + DELTAFIN_VERSION + "\ntokenizer classes: " + UnicodeVersion();
}

}  // namespace deltafin
