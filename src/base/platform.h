// platform.h: what differs between operating systems and compilers, as constants.
//
// The only header outside kernels that may hold a conditional on them; everything else is chosen by which file is
// linked (machine_linux.cc, direct_file_darwin.cc, ...).
#pragma once

namespace deltafin {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif
#else
inline constexpr bool kIsSanitized = false;
#endif

#if defined(NDEBUG)
inline constexpr bool kIsDebug = false;
#else
inline constexpr bool kIsDebug = true;
#endif

}  // namespace deltafin
