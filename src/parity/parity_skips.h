#ifndef WEFT_PARITY_PARITY_SKIPS_H
#define WEFT_PARITY_PARITY_SKIPS_H

#include "parity/parity.h"

/* Compares the Skiparse tables out.skiparse_single and _group exactly, if the golden file has
 * them. */
weft_status weft_parity_skips(weft_parity *p);

#endif
