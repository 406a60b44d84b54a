/* The machine of the server: processors, memory, disk and worker. */
#ifndef WEFT_SERVE_MACHINE_API_H
#define WEFT_SERVE_MACHINE_API_H

#include "serve/serve_request.h"

weft_serve_reply weft_machine_get(const weft_server *server);

#endif
