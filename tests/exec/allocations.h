/* Counts the allocations of the process. Counts nothing in builds whose sanitizer allocates itself.
 * */
#ifndef WEFT_TESTS_RUNTIME_ALLOCATIONS_H
#define WEFT_TESTS_RUNTIME_ALLOCATIONS_H

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define COUNTS_ALLOCATIONS 0
#else
#define COUNTS_ALLOCATIONS 1
#endif

typedef struct allocations {
    long own, others; /* calls from this executable, which is all of weft; from the libraries */
    long largest;     /* bytes, of our own */
    long aligned;     /* bytes of weft's aligned_alloc, for tensors */
} allocations;

void allocations_begin(void); /* from all threads, from now */
allocations allocations_end(void);

#endif
