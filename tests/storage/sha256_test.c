/* SHA-256 and HMAC against published vectors. */
#include "storage/sha256.h"

#include <criterion/criterion.h>

#include <string.h>

/* Vectors of FIPS 180-4, and lengths around the blocks, from sha256sum. */
Test(sha256, vectors)
{
    char hex[WEFT_SHA256_HEX], text[200];
    cr_assert_eq(weft_sha256_hex("", 0, hex), WEFT_OK);
    cr_assert_str_eq(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    cr_assert_eq(weft_sha256_hex("abc", 3, hex), WEFT_OK);
    cr_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    memset(text, 'a', sizeof text);
    cr_assert_eq(weft_sha256_hex(text, 55, hex), WEFT_OK);
    cr_assert_str_eq(hex, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    cr_assert_eq(weft_sha256_hex(text, 56, hex), WEFT_OK);
    cr_assert_str_eq(hex, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
    cr_assert_eq(weft_sha256_hex(text, 64, hex), WEFT_OK);
    cr_assert_str_eq(hex, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
    cr_assert_eq(weft_sha256_hex(text, 200, hex), WEFT_OK);
    cr_assert_str_eq(hex, "c2a908d98f5df987ade41b5fce213067efbcc21ef2240212a41e54b5e7c28ae5");
}

/* RFC 4231, test cases 2 and 6 (a key longer than a block). */
Test(sha256, hmac_vectors)
{
    static const uint8_t jefe[4] = {0x5b, 0xdc, 0xc1, 0x46}, longer[4] = {0x60, 0xe4, 0x31, 0x59};
    static const char text[] = "what do ya want for nothing?";
    static const char hashed[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    uint8_t mac[WEFT_SHA256_BYTES], key[131];
    memset(key, 0xaa, sizeof key);
    cr_assert_eq(weft_hmac_sha256("Jefe", 4, text, sizeof text - 1, mac), WEFT_OK);
    cr_assert_arr_eq(mac, jefe, sizeof jefe);
    cr_assert_eq(weft_hmac_sha256(key, sizeof key, hashed, sizeof hashed - 1, mac), WEFT_OK);
    cr_assert_arr_eq(mac, longer, sizeof longer);
}
