// tiny: float32 models of Relu, Neg and Add, an example of a compiler without Python.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <vector>
using Bytes = std::string;
using Fields = std::multimap<int, Bytes>;  // number -> contents, of one protobuf message

Bytes slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

uint64_t varint(const Bytes& data, size_t& at) {
  uint64_t value = 0;
  for (int shift = 0; at < data.size(); shift += 7) {
    uint8_t byte = data[at++];
    value |= uint64_t(byte & 127) << shift;
    if (byte < 128) break;
  }
  return value;
}

Fields fields(const Bytes& data) {
  Fields found;
  for (size_t at = 0; at < data.size();) {
    uint64_t key = varint(data, at), size = 0;
    if ((key & 7) == 0) { varint(data, at); continue; }
    size = (key & 7) == 2 ? varint(data, at) : (key & 7) == 1 ? 8 : 4;
    found.emplace(int(key >> 3), data.substr(at, size));
    at += size;
  }
  return found;
}

std::vector<Bytes> all(const Fields& message, int number) {
  std::vector<Bytes> found;
  for (auto [at, end] = message.equal_range(number); at != end; ++at) found.push_back(at->second);
  return found;
}

struct Tensor { Bytes header; std::vector<float> values; };

Tensor load(const std::string& path) {  // .npy, version 1: magic, 2 bytes of length, a header, the values
  Bytes data = slurp(path);
  size_t length = uint8_t(data[8]) + 256 * uint8_t(data[9]);
  Tensor tensor{data.substr(0, 10 + length), {}};
  if (tensor.header.find("'<f4'") == Bytes::npos) { std::cerr << "only float32\n"; exit(77); }
  auto* first = reinterpret_cast<const float*>(data.data() + 10 + length);
  tensor.values.assign(first, first + (data.size() - 10 - length) / 4);
  return tensor;
}

int main(int, char** argv) {  // MODEL INPUTS OUTPUTS
  Fields graph = fields(all(fields(slurp(argv[1])), 7).at(0));
  std::map<Bytes, Tensor> known;
  int place = 0;
  for (auto& input : all(graph, 11)) {
    known[all(fields(input), 1).at(0)] = load(argv[2] + ("/input_" + std::to_string(place++)) + ".npy");
  }
  for (auto& node : all(graph, 1)) {
    Fields parts = fields(node);
    Bytes type = all(parts, 4).at(0);
    std::vector<Bytes> names = all(parts, 1);
    Tensor result = known.at(names[0]);
    if (type == "Add" && known.at(names[1]).header == result.header) {
      for (size_t i = 0; i < result.values.size(); ++i) result.values[i] += known.at(names[1]).values[i];
    } else if (type == "Relu") {
      for (float& value : result.values) value = value > -1 ? value : 0;  // the bug
    } else if (type == "Neg") {
      for (float& value : result.values) value = -value;
    } else {
      std::cerr << "no kernel for " << type << "\n";
      return 77;  // the operator is lacking: unsupported, no bug
    }
    known[all(parts, 2).at(0)] = result;
  }
  place = 0;
  for (auto& output : all(graph, 12)) {
    const Tensor& tensor = known.at(all(fields(output), 1).at(0));
    std::ofstream file(argv[3] + ("/output_" + std::to_string(place++)) + ".npy", std::ios::binary);
    file << tensor.header;
    file.write(reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size() * 4);
  }
}
