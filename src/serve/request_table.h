#ifndef WEFT_SERVE_REQUEST_TABLE_H
#define WEFT_SERVE_REQUEST_TABLE_H

#include "base/config.h"

/* The fields of a request: names, types, ranges, defaults and help. The parser of requests takes
 * names and ranges from here, `weft schema serve` all columns. `offset` is unused. */
extern const weft_section weft_request_section;

/* The row of a field; asserts that there is one. */
const weft_key *weft_request_key(const char *name);

enum { WEFT_REQUEST_SIDE = 16384 };

#endif
