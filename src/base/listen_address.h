/* Addresses that a server of weft listens at: ADDRESS:PORT or [ADDRESS]:PORT, of digits. */
#ifndef WEFT_BASE_LISTEN_ADDRESS_H
#define WEFT_BASE_LISTEN_ADDRESS_H

#include "base/status.h"

#include <netdb.h>

/* Reads the value `text` of the option `key`. No name is looked up. The caller frees *address with
 * freeaddrinfo. WEFT_E_ARG: the text is not an address. */
weft_status weft_listen_address_read(const char *text, const char *key, struct addrinfo **address);

#endif
