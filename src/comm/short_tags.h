#ifndef WEFT_COMM_SHORT_TAGS_H
#define WEFT_COMM_SHORT_TAGS_H

#include "base/status.h"
#include "comm/comm.h"

/* Adds tags of WEFT_TAG_BITS to a transport with shorter tags (short_tags.c). */
weft_status weft_transport_number(weft_transport *transport);

#endif
