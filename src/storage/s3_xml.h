/* Values of S3's XML replies: elements by name, in order, without a tree. */
#ifndef WEFT_STORAGE_S3_XML_H
#define WEFT_STORAGE_S3_XML_H

#include "base/memory.h"

#include <stdbool.h>

/* Returns the content of the next element of this name from `from` on, up to its end tag, and sets
 * *bytes; NULL: none. The content of nested elements is included. */
const char *weft_xml_find(const char *from, const char *name, int64_t *bytes);
/* Appends text with &lt; &gt; &amp; &quot; &apos; and &#N; decoded. */
void weft_xml_decode(weft_buf *to, const char *text, int64_t bytes);
/* Replaces %XX in place, and returns the new length. */
int64_t weft_uri_decode(char *text, int64_t bytes);
/* Copies the decoded content of the first element of this name into text[size], cut if longer; ""
 * without one. Returns text. */
const char *weft_xml_text(const char *xml, const char *name, char *text, int64_t size);
/* Whether the text begins as XML and does not have the end tag of its first element, as after a
 * reply that was cut. NULL and other text: false. */
bool weft_xml_is_cut(const char *xml);

#endif
