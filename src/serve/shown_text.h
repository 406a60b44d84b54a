/* Texts of answers: whole characters, and no path of the machine. */
#ifndef WEFT_SERVE_SHOWN_TEXT_H
#define WEFT_SERVE_SHOWN_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Copies the characters that fit into to[size]. A byte that is not UTF-8 becomes '?'. A character
 * that does not fit, or that `from` has in part at its end, ends the copy. */
void weft_shown_text_copy(char *to, size_t size, const char *from);
/* Whether a word of the text is an absolute path, or begins with "./", "../" or "~". Words such as
 * "GiB/s" and "Wan-AI/Wan2.1" are not. A child of the server knows folders by absolute paths. */
bool weft_shown_text_has_path(const char *text);

#endif
