#ifndef WEFT_COMM_LINK_MODEL_H
#define WEFT_COMM_LINK_MODEL_H

#include "comm/comm.h"

/* Parses a link model such as "1 Gbit/s, 50 us, 2 per node; inside 20 Gbit/s, 5 us; 0-2 0.1 Gbit/s,
 * 1000 us". The first part is the link between nodes. Optional: ranks per node (default 1),
 * `inside` (default: no delay), and pairs of nodes. */
weft_status weft_link_model_parse(const char *text, weft_link_model *model);
/* Adds the model over `count` transports of ranks of one process, or over one transport. */
weft_status weft_transport_link(weft_transport *transport, int count, const weft_link_model *model);

#endif
