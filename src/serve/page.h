/* The web page: one document, built from src/serve/page/ (cmake/page.cmake). */
#ifndef WEFT_SERVE_PAGE_H
#define WEFT_SERVE_PAGE_H

#include "serve/serve_reply.h"

weft_serve_reply weft_page_get(void);

#endif
