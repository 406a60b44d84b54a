/* The stores of a comparison: the host's, which comparisons read and write in place, and a copy on
 * a device whose memory the host cannot access. */
#ifndef WEFT_PARITY_PARITY_STORE_H
#define WEFT_PARITY_PARITY_STORE_H

#include "parity/parity.h"

/* Sets *store to p->store, or to its copy in the memory of p->backend (p->device_store), which the
 * first call makes. */
weft_status weft_parity_device_store(weft_parity *p, weft_store **store);
/* Copies the values of p->device_store, if any, to p->store: programs that ran have changed
 * them. */
weft_status weft_parity_fetch_store(weft_parity *p);
/* Frees both stores. Free bound programs first. */
void weft_parity_free_stores(weft_parity *p);

#endif
