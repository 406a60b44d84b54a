/* Sized structs of the public headers: structs that begin with `size_t size`. */
#ifndef WEFT_API_SIZED_H
#define WEFT_API_SIZED_H

#include "base/status.h"

/* Copies the caller's struct `from` (NULL: defaults) into *to of `known` bytes. Members that the
 * caller's struct lacks become zero. Returns WEFT_E_UNSUPPORTED if it is longer and a member that
 * the library does not know is set. `type` names the struct in the error. */
weft_status weft_sized_read(void *to, size_t known, const void *from, const char *type);
/* Copies *from of `known` bytes into the caller's struct `to`, up to its size, and sets members
 * that the library does not know to zero. to->size is unchanged. */
weft_status weft_sized_write(void *to, const void *from, size_t known, const char *type);

#define WEFT_SIZED_READ(to, from)  weft_sized_read(&(to), sizeof(to), (from), #from)
#define WEFT_SIZED_WRITE(to, from) weft_sized_write((to), &(from), sizeof(from), #to)

#endif
