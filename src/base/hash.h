/* XXH3 by the widest vectors that the processor has. Built for any x86-64, <xxhash.h> alone hashes
 * with SSE2, at less than half of what AVX2 does: that is what reading checked data waits for. The
 * values are the same. */
#ifndef WEFT_HASH_H
#define WEFT_HASH_H

#define XXH_STATIC_LINKING_ONLY /* allows a state on the stack */
#include <xxhash.h>
#ifdef __x86_64__
#include <xxh_x86dispatch.h> /* libxxhash's choice of the instruction set at run time */
#endif

#include "base/memory.h"

/* The file's bytes into the state: read in pieces, so that a large one takes no memory. */
weft_status weft_hash_file(XXH3_state_t *state, const char *path);

#endif
