/* Size of the inputs in a golden file. */
#ifndef WEFT_PARITY_PARITY_SIZE_H
#define WEFT_PARITY_PARITY_SIZE_H

#include "parity/parity.h"

/* Returns the number of latents along a side of a token. */
int64_t weft_parity_token_side(const weft_parity *p);
/* Sets the latent frames of the history of `port`, if it is one, from its golden (B,C,N,Y,X). */
void weft_parity_size_history(const weft_stored_tensor *t, weft_port port, weft_model_size *size);
/* Sets p->size from the golden video and from text, (B,...,L,D) or ids (B,L). */
weft_status weft_parity_find_size(weft_parity *p);

#endif
