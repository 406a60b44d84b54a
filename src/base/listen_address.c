#include "base/listen_address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static weft_status refuse_address(const char *text, const char *key, const char *why)
{
    return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = key, .value = text), "%s", why);
}

/* The C library takes a port modulo 65536. */
static bool is_port(const char *text)
{
    const size_t length = strlen(text);
    return length >= 1 && length <= 5 && strspn(text, "0123456789") == length &&
           atoi(text) <= 65535;
}

weft_status weft_listen_address_read(const char *text, const char *key, struct addrinfo **address)
{
    char host[128];
    const char *colon = strrchr(text, ':');
    const bool bracket = text[0] == '[' && colon && colon[-1] == ']';
    const size_t length = colon ? (size_t)(colon - text) - 2 * bracket : 0;
    const struct addrinfo hints = {.ai_family = bracket ? AF_INET6 : AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    snprintf(host, sizeof host, "%.*s", (int)length, text + bracket);
    if (colon && !bracket && strchr(host, ':'))
        return refuse_address(text, key, "an IPv6 address needs brackets, such as [::1]:8080");
    if (colon && !is_port(colon + 1))
        return refuse_address(text, key, "the port is not 0 to 65535, such as 127.0.0.1:8080");
    if (!colon || length == 0 || length >= sizeof host ||
        getaddrinfo(host, colon + 1, &hints, address) != 0)
        return refuse_address(text, key,
                              "the value is not ADDRESS:PORT with an address of digits, such as "
                              "127.0.0.1:8080 or [::1]:8080");
    return WEFT_OK;
}
