// platform.h: what differs between operating systems and compilers, as constants.
//
// The only header outside kernels that may hold a conditional on them; everything else is chosen by which file is
// linked (machine_linux.cc, direct_file_darwin.cc, ...).
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define DFIN_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DFIN_ADDRESS_SANITIZER 1
#elif __has_feature(thread_sanitizer)
#define DFIN_THREAD_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define DFIN_THREAD_SANITIZER 1
#endif

#if defined(DFIN_ADDRESS_SANITIZER)
extern "C" void __lsan_ignore_object(const void* object);
#endif

namespace deltafin {

#if defined(DFIN_ADDRESS_SANITIZER) || defined(DFIN_THREAD_SANITIZER)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

// Tells a leak checker that an object on the heap, and what it holds, is left behind on purpose.
inline void LeaveBehind([[maybe_unused]] const void* object) {
#if defined(DFIN_ADDRESS_SANITIZER)
  __lsan_ignore_object(object);
#endif
}

#if defined(NDEBUG)
inline constexpr bool kIsDebug = false;
#else
inline constexpr bool kIsDebug = true;
#endif

}  // namespace deltafin
