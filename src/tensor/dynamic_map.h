// The signed 8-bit dynamic map of bitsandbytes (create_dynamic_map): 256 values in [-1, 1],
// ascending, dense around zero.
#pragma once

#include <array>
#include <cstddef>

namespace longstride {
namespace dynamic_map_parts {

// The positive ones below 1:
// 2^i means of equal steps of [0.1, 1] times 10^(i - 6), for i = 0 ... 6, in F32.
inline constexpr std::array<float, 127> kPositive = {
    0x1.27476ep-21f, 0x1.b43528p-19f, 0x1.040bfep-17f, 0x1.64840cp-16f, 0x1.6f0068p-15f,
    0x1.15df66p-14f, 0x1.743e96p-14f, 0x1.47ae16p-13f, 0x1.19ce0ap-12f, 0x1.8fc506p-12f,
    0x1.02de02p-11f, 0x1.3dd982p-11f, 0x1.78d5p-11f,   0x1.b3d07cp-11f, 0x1.eecbfep-11f,
    0x1.4fdf3ap-10f, 0x1.e353f8p-10f, 0x1.3b645ap-9f,  0x1.851eb8p-9f,  0x1.ced914p-9f,
    0x1.0c49bap-8f,  0x1.3126e8p-8f,  0x1.56041ap-8f,  0x1.7ae148p-8f,  0x1.9fbe76p-8f,
    0x1.c49ba6p-8f,  0x1.e978d4p-8f,  0x1.072b02p-7f,  0x1.19999ap-7f,  0x1.2c083p-7f,
    0x1.3e76c8p-7f,  0x1.75c29p-7f,   0x1.d1eb86p-7f,  0x1.170a3ep-6f,  0x1.451ebap-6f,
    0x1.733334p-6f,  0x1.a147aep-6f,  0x1.cf5c2ap-6f,  0x1.fd70a4p-6f,  0x1.15c29p-5f,
    0x1.2ccccep-5f,  0x1.43d70ap-5f,  0x1.5ae146p-5f,  0x1.71eb86p-5f,  0x1.88f5c2p-5f,
    0x1.ap-5f,       0x1.b70a3ep-5f,  0x1.ce147ap-5f,  0x1.e51ebap-5f,  0x1.fc28f6p-5f,
    0x1.09999ap-4f,  0x1.151ebap-4f,  0x1.20a3d6p-4f,  0x1.2c28f6p-4f,  0x1.37ae14p-4f,
    0x1.433334p-4f,  0x1.4eb854p-4f,  0x1.5a3d7p-4f,   0x1.65c29p-4f,   0x1.7147aep-4f,
    0x1.7ccccep-4f,  0x1.8851eep-4f,  0x1.93d70ap-4f,  0x1.b66668p-4f,  0x1.fp-4f,
    0x1.14ccccp-3f,  0x1.31999ap-3f,  0x1.4e6666p-3f,  0x1.6b3334p-3f,  0x1.88p-3f,
    0x1.a4ccccp-3f,  0x1.c1999ap-3f,  0x1.de6666p-3f,  0x1.fb3332p-3f,  0x1.0cp-2f,
    0x1.1a6668p-2f,  0x1.28ccccp-2f,  0x1.373334p-2f,  0x1.459998p-2f,  0x1.54p-2f,
    0x1.626666p-2f,  0x1.70ccccp-2f,  0x1.7f3334p-2f,  0x1.8d9998p-2f,  0x1.9cp-2f,
    0x1.aa6666p-2f,  0x1.b8ccccp-2f,  0x1.c73334p-2f,  0x1.d59998p-2f,  0x1.e4p-2f,
    0x1.f26664p-2f,  0x1.006666p-1f,  0x1.079998p-1f,  0x1.0eccccp-1f,  0x1.16p-1f,
    0x1.1d3334p-1f,  0x1.246668p-1f,  0x1.2b999ap-1f,  0x1.32ccccp-1f,  0x1.3ap-1f,
    0x1.413334p-1f,  0x1.486668p-1f,  0x1.4f999ap-1f,  0x1.56ccccp-1f,  0x1.5ep-1f,
    0x1.653334p-1f,  0x1.6c6668p-1f,  0x1.73999ap-1f,  0x1.7accccp-1f,  0x1.82p-1f,
    0x1.893334p-1f,  0x1.906666p-1f,  0x1.97999ap-1f,  0x1.9eccccp-1f,  0x1.a6p-1f,
    0x1.ad3334p-1f,  0x1.b46666p-1f,  0x1.bb999ap-1f,  0x1.c2ccccp-1f,  0x1.cap-1f,
    0x1.d13334p-1f,  0x1.d86666p-1f,  0x1.df999ap-1f,  0x1.e6ccccp-1f,  0x1.eep-1f,
    0x1.f53334p-1f,  0x1.fc6666p-1f,
};

constexpr std::array<float, 256> make() {
  std::array<float, 256> map{};
  for (std::size_t i = 0; i < 127; ++i) {
    map[126 - i] = -kPositive[i];
    map[128 + i] = kPositive[i];
  }
  map[255] = 1.0f;
  return map;
}

}  // namespace dynamic_map_parts

inline constexpr std::array<float, 256> kDynamicMap = dynamic_map_parts::make();

}  // namespace longstride
