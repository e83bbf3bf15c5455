// Thread-safety annotations: which lock a member needs, and which locks a function takes, needs or gives up.
// Clang checks them (-Wthread-safety, `make check-threads`); other compilers see nothing.
//
//   int count_ WEFT_GUARDED_BY(mutex_);                 read and written with mutex_ held
//   void add() WEFT_REQUIRES(mutex_);                   its callers hold mutex_
//   explicit MutexLock(Mutex& m) WEFT_ACQUIRE(m);       returns with m held
//
// Source: https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
#pragma once

#if defined(__clang__)
#define WEFT_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define WEFT_THREAD_ANNOTATION(x)
#endif

/// A class whose objects are locks; `name` is a string that messages use.
#define WEFT_CAPABILITY(name) WEFT_THREAD_ANNOTATION(capability(name))
/// A class whose objects hold a lock from construction to destruction.
#define WEFT_SCOPED_CAPABILITY WEFT_THREAD_ANNOTATION(scoped_lockable)

#define WEFT_GUARDED_BY(x) WEFT_THREAD_ANNOTATION(guarded_by(x))
/// The pointer may be read without the lock, what it points to may not.
#define WEFT_PT_GUARDED_BY(x) WEFT_THREAD_ANNOTATION(pt_guarded_by(x))

#define WEFT_REQUIRES(...) WEFT_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define WEFT_EXCLUDES(...) WEFT_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define WEFT_ACQUIRE(...) WEFT_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define WEFT_RELEASE(...) WEFT_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define WEFT_TRY_ACQUIRE(...) WEFT_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
/// The function returns this lock.
#define WEFT_RETURN_CAPABILITY(x) WEFT_THREAD_ANNOTATION(lock_returned(x))
/// After the call the analysis takes the lock to be held: for callbacks, whose callers it does not see.
#define WEFT_ASSERT_CAPABILITY(x) WEFT_THREAD_ANNOTATION(assert_capability(x))

/// For a class of locks that a function returns by value. Clang 16 and later look at the function, earlier
/// ones at the class's move constructor.
#if defined(__clang__) && __clang_major__ < 16
#define WEFT_RETURNS_LOCK(x)
#define WEFT_ACQUIRED_BY_VALUE(x) WEFT_ACQUIRE(x)
#else
#define WEFT_RETURNS_LOCK(x) WEFT_ACQUIRE(x)
#define WEFT_ACQUIRED_BY_VALUE(x)
#endif

/// For functions that the analysis cannot follow; a comment beside it says why they are right.
#define WEFT_NO_THREAD_SAFETY_ANALYSIS WEFT_THREAD_ANNOTATION(no_thread_safety_analysis)
